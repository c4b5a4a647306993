"""Forms that keep OpenVINO from computing other numbers than a QDQ model says."""
