"""Real servers for tests and benchmarks: how each is had, started, waited for and ended.

Nothing here is part of the product.  A binary is looked for where an environment variable points, then on
PATH, then in `.cache/testbed`, and is built or installed there once.  Servers run on loopback, on ports no
other run can take, and never outlive the process that started them.
"""
