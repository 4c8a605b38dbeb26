//! Integers of dynamic tools. serde_json reads `-0`, and integers that neither an `i64` nor a `u64` can hold, as an `f64`.

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Number, Value};

/// The bound above which an `f64` cannot hold every integer, so that digits may have been lost.
const FIRST_INEXACT: f64 = 9_007_199_254_740_992.0;

/// The keyword `type`. Only a number that was read without loss is an integer.
struct Type(Vec<String>);

/// Creates the keyword `type`. The schema is valid according to its meta-schema.
pub(super) fn type_keyword<'a>(
    _: &'a Map<String, Value>,
    value: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    Ok(Box::new(Type(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())))
}

impl<'i> Keyword<'i> for Type {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            Ok(())
        } else {
            Err(ValidationError::custom(format!("is not of type {}", self.0.join(" or "))))
        }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.0.iter().any(|name| match (&**name, instance) {
            ("integer", Value::Number(number)) => is_exact_integer(number),
            ("number", Value::Number(_))
            | ("string", Value::String(_))
            | ("object", Value::Object(_))
            | ("array", Value::Array(_))
            | ("boolean", Value::Bool(_))
            | ("null", Value::Null) => true,
            _ => false,
        })
    }
}

fn is_exact_integer(number: &Number) -> bool {
    !number.is_f64()
        || number.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() < FIRST_INEXACT)
}

/// Returns `true` if the value contains an integer that is written with a fraction or an exponent.
pub(super) fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        Value::Array(values) => values.iter().any(has_whole_float),
        Value::Object(members) => members.values().any(has_whole_float),
        _ => false,
    }
}

/// Replaces each `-0` with `0`.
pub(super) fn replace_negative_zeros(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(is_negative_zero) => *value = 0.into(),
        Value::Array(values) => values.iter_mut().for_each(replace_negative_zeros),
        Value::Object(members) => members.values_mut().for_each(replace_negative_zeros),
        _ => {}
    }
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}
