"""Engines that the suites can measure."""
