"""Ask a browser for a captcha after five actions."""
