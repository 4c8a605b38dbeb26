//! How large a schema may be that a provider holds a model to, as OpenAI publishes it.

use serde_json::Value;

/// How many objects and lists may stand in each other.
const DEEPEST: usize = 10;

const MOST_PROPERTIES: usize = 5_000;

const MOST_ENUM_VALUES: usize = 1_000;

/// How many characters the names of properties and definitions and the values of `enum` and `const` may have.
const MOST_CHARACTERS: usize = 120_000;

/// An `enum` of more texts than this may have no more characters than that.
const LONG_ENUM: (usize, usize) = (250, 15_000);

/// How many schemas may be written, and how many bytes of descriptions. No provider says so, but none would take more,
/// and schemas that refer and are merged must not grow beyond all bounds.
const MOST_SCHEMAS: usize = 20_000;
const MOST_TEXT: usize = 1_000_000;

/// What was written so far.
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
    #[inline]
    pub(super) fn level(level: usize) -> Checked {
        if level > DEEPEST {
            return Err(format!(
                "more than {DEEPEST} objects and lists in each other are too deep for strict mode; make it flatter"
            ));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn schema(&mut self) -> Checked {
        count(&mut self.schemas, 1, MOST_SCHEMAS, "schemas")
    }

    #[inline]
    pub(super) fn properties(&mut self, more: usize) -> Checked {
        count(&mut self.properties, more, MOST_PROPERTIES, "properties")
    }

    #[inline]
    pub(super) fn name(&mut self, name: &str) -> Checked {
        count(
            &mut self.characters,
            name.chars().count(),
            MOST_CHARACTERS,
            "characters in names and `enum` values",
        )
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) -> Checked {
        count(&mut self.text, text.len(), MOST_TEXT, "bytes in descriptions")
    }

    #[inline]
    pub(super) fn constant(&mut self, value: &Value) -> Checked {
        self.name(value.as_str().unwrap_or_default())
    }

    #[inline]
    pub(super) fn enum_values(&mut self, values: &[&Value]) -> Checked {
        count(&mut self.enum_values, values.len(), MOST_ENUM_VALUES, "`enum` values")?;
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

#[inline]
fn count(sum: &mut usize, more: usize, most: usize, what: &str) -> Checked {
    *sum = sum.saturating_add(more);
    if *sum > most {
        return Err(format!(
            "more than {most} {what} are too many for strict mode; make several tools of it"
        ));
    }
    Ok(())
}
