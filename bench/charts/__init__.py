# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws what is in bench/results."""
