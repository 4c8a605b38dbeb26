//! The fields of a request's body: those that are known here, and further ones of the caller's.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::json::write_text;

/// Writes the fields of a body that are not its messages.
///
/// A further field that has a name of those written here is joined to it: the entries of an object and of a list stand
/// behind those that are there, and anything else takes the place of what is there.
pub(crate) struct Fields<'a> {
    json: Vec<u8>,
    further: &'a Map<String, Value>,
    joined: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// A body that has begun with fields of its own.
    pub(crate) fn behind(json: Vec<u8>, further: &'a Map<String, Value>) -> Self {
        Self { json, further, joined: Vec::new() }
    }

    /// A further field has this name.
    pub(crate) fn has_further(&self, name: &str) -> bool {
        self.further.contains_key(name)
    }

    /// Writes a field.
    ///
    /// # Errors
    ///
    /// The value has no JSON.
    fn write(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let Some(further) = self.further.get(name) else { return self.entry(name, value) };
        self.joined.push(name);
        let mut joined = serde_json::to_value(value).map_err(|error| no_json(name, &error))?;
        join(&mut joined, further);
        self.entry(name, &joined)
    }

    /// Writes the field if it is set.
    pub(crate) fn write_set(
        &mut self,
        name: &'static str,
        value: Option<impl Serialize>,
    ) -> Result<(), Error> {
        value.map_or(Ok(()), |value| self.write(name, &value))
    }

    /// Writes the field if it is set: a value that is JSON already, and may be long.
    pub(crate) fn write_json(&mut self, name: &'static str, json: Option<&str>) -> Result<(), Error> {
        let Some(json) = json else { return Ok(()) };
        if self.has_further(name) {
            let value: Value = serde_json::from_str(json).map_err(|error| no_json(name, &error))?;
            return self.write(name, &value);
        }
        self.begin(name);
        self.json.extend_from_slice(json.as_bytes());
        Ok(())
    }

    /// Writes the further fields that were not joined to others, and gives the body.
    pub(crate) fn with_further(mut self) -> Result<Vec<u8>, Error> {
        for (name, value) in self.further {
            if !self.joined.contains(&&**name) {
                self.entry(name, value)?;
            }
        }
        Ok(self.json)
    }

    fn begin(&mut self, name: &str) {
        self.json.push(b',');
        write_text(&mut self.json, name);
        self.json.push(b':');
    }

    fn entry(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.begin(name);
        serde_json::to_writer(&mut self.json, value).map_err(|error| no_json(name, &error))
    }
}

fn no_json(name: &str, error: &serde_json::Error) -> Error {
    Error::request(format!("`{name}` cannot be written as JSON: {error}"))
}

fn join(value: &mut Value, further: &Value) {
    match (value, further) {
        (Value::Object(value), Value::Object(further)) => {
            for (name, further) in further {
                join(value.entry(&**name).or_insert(Value::Null), further);
            }
        }
        (Value::Array(value), Value::Array(further)) => value.extend(further.iter().cloned()),
        (value, further) => *value = further.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn further_fields_are_joined_to_those_of_their_name() {
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
        for (further, expected) in table {
            let further = further.as_object().unwrap();
            let mut fields = Fields::behind(br#"{"model":"m""#.to_vec(), further);
            fields.write_set("reasoning", Some(&ours["reasoning"])).unwrap();
            fields.write_json("include", Some(r#"["a"]"#)).unwrap();
            fields.write_set("user", Some("u")).unwrap();
            fields.write_json("tools", None).unwrap();
            fields.write_set("seed", None::<u8>).unwrap();
            let mut body = fields.with_further().unwrap();
            body.push(b'}');
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body.as_object_mut().unwrap().shift_remove("model"), Some(json!("m")));
            assert_eq!(body.to_string(), expected.to_string(), "{further:?}");
        }
    }
}
