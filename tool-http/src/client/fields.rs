//! The fields of a request body: the API's own and the caller's extra ones.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::Error;
use super::request_body::BodyWriter;

/// Writes a request body, field by field.
///
/// An extra field with the name of another field is merged into that one: objects field by field, arrays by appending, and
/// any other value replaces the value that is there.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    body: BodyWriter,
    extra: &'a Map<String, Value>,
    merged: Vec<&'a str>,
}

impl<'a> FieldWriter<'a> {
    /// Starts a body of about this length.
    #[must_use]
    pub fn new(capacity: usize, extra: &'a Map<String, Value>) -> Self {
        Self { body: BodyWriter::starting_with(Vec::with_capacity(capacity)), extra, merged: Vec::new() }
    }

    /// Rejects extra fields that only the request itself sets. `reserved` has their names and what sets them.
    ///
    /// # Errors
    ///
    /// Returns the way to set the first of them.
    pub fn reject_reserved(&self, reserved: &[(&str, &str)]) -> Result<(), Error> {
        match reserved.iter().find(|(name, _)| self.extra.contains_key(*name)) {
            Some((name, setter)) => {
                Err(Error::request(format!("the extra field `{name}` is reserved; use {setter} instead")))
            }
            None => Ok(()),
        }
    }

    /// Returns `true` if there is an extra field of this name.
    #[must_use]
    pub fn has_extra(&self, name: &str) -> bool {
        self.extra.contains_key(name)
    }

    /// Writes a field unless its value is `None`.
    ///
    /// # Errors
    ///
    /// Fails if the value cannot be written as JSON.
    pub fn write(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.write_value(name, &value))
    }

    /// Writes a number unless it is `None`.
    ///
    /// # Errors
    ///
    /// Fails if the number is not finite: JSON would hold `null`, which APIs read as unset.
    pub fn write_number(&mut self, name: &str, number: Option<f64>) -> Result<(), Error> {
        match number {
            Some(number) if !number.is_finite() => {
                Err(Error::request(format!("the option `{name}` is {number}; use a finite number")))
            }
            number => self.write(name, number),
        }
    }

    /// Writes a field whose value is already JSON, and possibly long, unless it is `None`.
    ///
    /// # Errors
    ///
    /// Fails if an extra field is merged into it and it is not JSON.
    pub fn write_json(&mut self, name: &str, json: Option<&str>) -> Result<(), Error> {
        let Some(json) = json else { return Ok(()) };
        if self.extra.contains_key(name) {
            let value: Value = serde_json::from_str(json).map_err(|error| not_json(name, &error))?;
            return self.write_value(name, &value);
        }
        self.start_entry(name);
        self.body.json().extend_from_slice(json.as_bytes());
        Ok(())
    }

    /// Writes a field like [`write_json`](Self::write_json), whose value requests share: if it is long, it is not copied.
    ///
    /// # Errors
    ///
    /// Fails if an extra field is merged into it and it is not JSON.
    pub fn write_shared_json(&mut self, name: &str, json: Option<&Arc<str>>) -> Result<(), Error> {
        match json {
            Some(shared) if !self.extra.contains_key(name) => {
                self.start_entry(name);
                self.body.append_shared(shared);
                Ok(())
            }
            json => self.write_json(name, json.map(|json| &**json)),
        }
    }

    /// Writes the extra fields that were not merged into others, and the name of the field that follows; the caller appends its
    /// value and the end of the body.
    ///
    /// # Errors
    ///
    /// Fails if a value cannot be written as JSON.
    pub fn finish(mut self, name: &str) -> Result<BodyWriter, Error> {
        for (name, value) in self.extra {
            if !self.merged.contains(&&**name) {
                self.write_entry(name, value)?;
            }
        }
        self.start_entry(name);
        Ok(self.body)
    }

    fn write_value(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let Some((name, extra)) = self.extra.get_key_value(name) else {
            return self.write_entry(name, value);
        };
        self.merged.push(name);
        let mut merged = serde_json::to_value(value).map_err(|error| not_json(name, &error))?;
        merge(&mut merged, extra);
        self.write_entry(name, &merged)
    }

    fn write_entry(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.start_entry(name);
        serde_json::to_writer(self.body.json(), value).map_err(|error| not_json(name, &error))
    }

    fn start_entry(&mut self, name: &str) {
        let separator = if self.body.is_empty() { b'{' } else { b',' };
        self.body.json().push(separator);
        // Writing to a `Vec` does not fail.
        let _ = serde_json::to_writer(self.body.json(), name);
        self.body.json().push(b':');
    }
}

fn not_json(name: &str, error: &serde_json::Error) -> Error {
    Error::request(format!("could not write `{name}` as JSON: {error}"))
}

fn merge(value: &mut Value, extra: &Value) {
    match (value, extra) {
        (Value::Object(value), Value::Object(extra)) => {
            for (name, extra) in extra {
                merge(value.entry(&**name).or_insert(Value::Null), extra);
            }
        }
        (Value::Array(value), Value::Array(extra)) => value.extend(extra.iter().cloned()),
        (value, extra) => *value = extra.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extra_fields_are_merged_into_fields_of_the_same_name() {
        let ours = json!({ "reasoning": { "effort": "low" }, "include": ["a"], "user": "u" });
        let table = [
            (json!({}), ours.clone()),
            (
                json!({ "top_k": 40, "reasoning": { "summary": "auto" } }),
                json!({ "reasoning": { "effort": "low", "summary": "auto" }, "include": ["a"], "user": "u", "top_k": 40 }),
            ),
            (
                json!({ "include": ["b"], "user": "v", "reasoning": { "effort": "high" } }),
                json!({ "reasoning": { "effort": "high" }, "include": ["a", "b"], "user": "v" }),
            ),
            (
                json!({ "include": null, "reasoning": 1 }),
                json!({ "reasoning": 1, "include": null, "user": "u" }),
            ),
        ];
        for (extra, expected) in table {
            let mut fields = FieldWriter::new(0, extra.as_object().unwrap());
            fields.write("reasoning", Some(&ours["reasoning"])).unwrap();
            fields.write_json("include", Some(r#"["a"]"#)).unwrap();
            fields.write("user", Some("u")).unwrap();
            fields.write_json("tools", None).unwrap();
            fields.write("seed", None::<u8>).unwrap();
            let mut body = fields.finish("messages").unwrap();
            body.json().extend_from_slice(b"[]}");
            let mut body: Value = serde_json::from_slice(&body.finish().to_vec()).unwrap();
            assert_eq!(body.as_object_mut().unwrap().shift_remove("messages"), Some(json!([])));
            assert_eq!(body.to_string(), expected.to_string(), "{extra:?}");
        }
    }

    /// Short and long, first and later, alone and with an extra field to merge.
    #[test]
    fn a_shared_field_is_written_like_another() {
        for length in [1, 100_000] {
            let shared: Arc<str> = json!(["x".repeat(length)]).to_string().into();
            for extra in [json!({}), json!({ "tools": ["more"] })] {
                let written = |write: fn(&mut FieldWriter<'_>, &Arc<str>)| {
                    let mut fields = FieldWriter::new(0, extra.as_object().unwrap());
                    write(&mut fields, &shared);
                    fields.write("user", Some("u")).unwrap();
                    write(&mut fields, &shared);
                    fields.finish("messages").unwrap().finish().to_vec()
                };
                let as_shared =
                    written(|fields, json| fields.write_shared_json("tools", Some(json)).unwrap());
                assert!(as_shared == written(|fields, json| fields.write_json("tools", Some(json)).unwrap()));
                assert!(as_shared.starts_with(br#"{"tools":["x"#));
            }
        }
    }

    #[test]
    fn numbers_are_finite() {
        let extra = Map::new();
        let mut fields = FieldWriter::new(0, &extra);
        let error = fields.write_number("top_p", Some(f64::NAN)).unwrap_err();
        assert_eq!(error.to_string(), "the option `top_p` is NaN; use a finite number");
    }
}
