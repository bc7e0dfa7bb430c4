"""Learners: features in, a distribution of counts out."""
