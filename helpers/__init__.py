"""What studies and advisors share; knows neither."""
