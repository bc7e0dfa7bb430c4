"""One script a claim. Run from the checkout."""
