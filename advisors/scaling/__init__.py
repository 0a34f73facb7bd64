"""Fit a measured scaling curve, say what ends its growth, and predict other clusters."""
