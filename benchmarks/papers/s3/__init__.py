"""S3: Mei, Jiang, Tu (2018), Maximum a posteriori inference in sum-product networks."""
