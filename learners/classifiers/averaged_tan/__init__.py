"""Tree-augmented naive Bayes, averaged over all trees."""
