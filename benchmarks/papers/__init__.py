"""Tables and figures of the five papers behind fewpass, each made again by a file of its own."""
