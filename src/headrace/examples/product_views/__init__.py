"""Count views with the Processor API; alert by e-mail."""
