"""The average price of trades in hopping windows."""
