//! The limits on the size of strict schemas that OpenAI publishes.

use serde_json::Value;

/// The maximum nesting depth of objects and lists.
const MAX_LEVELS: usize = 10;

const MAX_PROPERTIES: usize = 5_000;

const MAX_ENUM_VALUES: usize = 1_000;

/// The maximum number of characters of the names of properties and definitions and the values of `enum` and `const`.
const MAX_CHARACTERS: usize = 120_000;

/// An `enum` with more values than the first number may have at most as many characters as the second.
const LONG_ENUM: (usize, usize) = (250, 15_000);

/// The maximum number of schemas. This limit is our own: it bounds the growth of schemas that are merged.
const MAX_SCHEMAS: usize = 20_000;

/// The maximum number of bytes of descriptions, for the same reason.
const MAX_TEXT: usize = 1_000_000;

/// Counts what was written so far.
#[derive(Default)]
pub(super) struct Limits {
    schemas: usize,
    properties: usize,
    enum_values: usize,
    characters: usize,
    text: usize,
}

type Checked = Result<(), String>;

impl Limits {
    pub(super) fn level(level: usize) -> Checked {
        if level > MAX_LEVELS {
            return Err(format!(
                "strict mode allows at most {MAX_LEVELS} levels of nested objects and lists; flatten the schema"
            ));
        }
        Ok(())
    }

    pub(super) fn schema(&mut self) -> Checked {
        count(&mut self.schemas, 1, MAX_SCHEMAS, "schemas")
    }

    pub(super) fn properties(&mut self, more: usize) -> Checked {
        count(&mut self.properties, more, MAX_PROPERTIES, "properties")
    }

    pub(super) fn name(&mut self, name: &str) -> Checked {
        count(
            &mut self.characters,
            name.chars().count(),
            MAX_CHARACTERS,
            "characters in names and `enum` values",
        )
    }

    pub(super) fn text(&mut self, text: &str) -> Checked {
        count(&mut self.text, text.len(), MAX_TEXT, "bytes in descriptions")
    }

    pub(super) fn constant(&mut self, value: &Value) -> Checked {
        self.name(value.as_str().unwrap_or_default())
    }

    pub(super) fn enum_values(&mut self, values: &[&Value]) -> Checked {
        count(&mut self.enum_values, values.len(), MAX_ENUM_VALUES, "`enum` values")?;
        let before = self.characters;
        for value in values {
            self.constant(value)?;
        }
        let (many, most) = LONG_ENUM;
        if values.len() > many && self.characters - before > most {
            return Err(format!(
                "an `enum` of more than {many} values may have at most {most} characters in strict mode"
            ));
        }
        Ok(())
    }
}

fn count(sum: &mut usize, more: usize, most: usize, unit: &str) -> Checked {
    *sum = sum.saturating_add(more);
    if *sum > most {
        return Err(format!("strict mode allows at most {most} {unit}; split the tool into several"));
    }
    Ok(())
}
