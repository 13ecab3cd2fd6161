# SPDX-License-Identifier: MIT OR Apache-2.0
"""Draws charts of bench/results."""
