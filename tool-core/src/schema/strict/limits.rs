//! Limits on the size of strict schemas.

use serde_json::Value;

/// The maximum nesting depth of objects and lists that OpenAI publishes.
const MAX_LEVELS: usize = 10;

/// An `enum` with more values than the first number can have at most as many characters as the second.
const LONG_ENUM: (usize, usize) = (250, 15_000);

/// The index of a count, its maximum and its unit.
#[derive(Clone, Copy)]
pub(super) struct Limit(usize, usize, &'static str);

/// OpenAI publishes this limit and the two next.
pub(super) const PROPERTIES: Limit = Limit(0, 5_000, "properties");
pub(super) const ENUM_VALUES: Limit = Limit(1, 1_000, "`enum` values");
const CHARACTERS: Limit = Limit(2, 120_000, "characters in names and `enum` values");

/// This limit and the next bound the growth of schemas whose alternatives repeat the enclosing properties.
pub(super) const SCHEMAS: Limit = Limit(3, 20_000, "schemas");
pub(super) const TEXT: Limit = Limit(4, 1_000_000, "bytes in descriptions");

/// Counts what was written so far.
#[derive(Default)]
pub(super) struct Limits([usize; 5]);

impl Limits {
    pub(super) fn add(&mut self, limit: Limit, more: usize) -> Result<(), String> {
        let Limit(index, maximum, unit) = limit;
        self.0[index] = self.0[index].saturating_add(more);
        if self.0[index] > maximum {
            return Err(format!("strict mode allows at most {maximum} {unit}; split the tool into several"));
        }
        Ok(())
    }

    pub(super) fn add_name(&mut self, name: &str) -> Result<(), String> {
        self.add(CHARACTERS, name.chars().count())
    }

    /// Counts the values of an `enum` or `const`.
    pub(super) fn add_values(&mut self, values: &[&Value]) -> Result<(), String> {
        self.add(ENUM_VALUES, values.len())?;
        let characters =
            values.iter().filter_map(|value| value.as_str()).map(|text| text.chars().count()).sum();
        let (many, most) = LONG_ENUM;
        if values.len() > many && characters > most {
            return Err(format!(
                "an `enum` of more than {many} values may have at most {most} characters in strict mode"
            ));
        }
        self.add(CHARACTERS, characters)
    }

    pub(super) fn check_level(level: usize) -> Result<(), String> {
        if level > MAX_LEVELS {
            return Err(format!(
                "strict mode allows at most {MAX_LEVELS} levels of nested objects and lists; flatten the schema"
            ));
        }
        Ok(())
    }
}
