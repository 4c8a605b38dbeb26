//! Writes JSON into buffers that already contain the start of a request, and reads it.

/// Writes a JSON string.
pub(crate) fn write_string(json: &mut Vec<u8>, text: &str) {
    // Writing to a `Vec` does not fail.
    let _ = serde_json::to_writer(json, text);
}

/// Writes a JSON array; `write` writes each element.
pub(crate) fn write_array<T>(
    json: &mut Vec<u8>,
    elements: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    json.push(b'[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write(json, element);
    }
    json.push(b']');
}

/// Returns `true` unless the value of a member `error` means that there is none.
pub(crate) fn is_error_value(value: &str) -> bool {
    !matches!(value.trim_ascii(), "null" | "false" | "0" | "\"\"" | "{}" | "[]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays() {
        let table: [(&[&str], &[u8]); 3] =
            [(&[], b"[]"), (&["a"], br#"["a"]"#), (&["a", "b"], br#"["a","b"]"#)];
        for (elements, expected) in table {
            let mut json = Vec::new();
            write_array(&mut json, elements, |json, text| write_string(json, text));
            assert_eq!(json, expected);
        }
    }
}
