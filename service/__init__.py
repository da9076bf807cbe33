"""The product's faces: REST, jobs and the command line. They translate, and compute nothing."""
