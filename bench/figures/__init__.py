# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads, compares and shows the results of `dmabuf-dio-bench`."""
