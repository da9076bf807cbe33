"""A posterior over which leaf each number of each row comes from, by collapsed Gibbs sampling."""
