"""Gas sensors that age for years, and a gas that goes missing and comes back."""
