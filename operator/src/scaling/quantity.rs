//! Quantities, as a spec has them.

/// A quantity of bytes or bits in Kubernetes' notation, such as `512Mi`; `None` where it is none, or nothing.
pub fn number(quantity: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 11] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((quantity.strip_suffix(suffix)?, unit)))?;
    let value = number.parse::<f64>().ok()? * unit;
    (value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        assert_eq!(number("512Mi"), Some(536_870_912.0));
        assert_eq!(number("2G"), Some(2e9));
        assert_eq!(number("1e3"), Some(1000.0));
        for wrong in ["", "Mi", "0", "-1Gi", "inf", "NaN", "1Xi"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
