"""The product's interfaces: REST, jobs and the command line. They translate requests and compute nothing."""
