# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads what `dmabuf-dio-bench` measured, and compares and shows it."""
