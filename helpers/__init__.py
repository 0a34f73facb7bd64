"""Helpers of *Arrays over the Wire*: storage, measurement and models, which meet only in notebooks."""
