# SPDX-License-Identifier: MIT OR Apache-2.0
"""Guest kernels for tests: get one, build modules for it, run a command in it."""
