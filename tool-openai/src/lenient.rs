//! Reads values of another type than the API says: what is of no use is as if it were not there, and never in the way of
//! the rest. Functions for `#[serde(deserialize_with)]`; they borrow what they can.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A text, or a number in its digits.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    deserializer.deserialize_any(TextVisitor)
}

/// A count, which may also be written as a text or as a fraction of nothing.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(CountVisitor)
}

/// An object. The type has to be one that reads objects.
pub(crate) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

/// A list of objects, of which those that are none are left out; one object is a list of it. More of them than `MOST` are
/// refused, as a list of the shortest takes a multiple of its text.
pub(crate) fn list<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(ListVisitor::<T, MOST>(PhantomData))
}

/// An object, for places where a type is asked for and no function.
pub(crate) struct Object<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

/// Reads on to the end of a list.
pub(crate) fn skip_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Reads on to the end of an object.
pub(crate) fn skip_object<'de, A: MapAccess<'de>>(mut object: A) -> Result<(), A::Error> {
    while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// The methods of a visitor to which these kinds of values are nothing.
macro_rules! nothing_is {
    ($($kind:ident),*) => { $(nothing_is!(@ $kind);)* };
    (@ null) => {
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ bool) => {
        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ number) => {
        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ text) => {
        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ list) => {
        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            $crate::lenient::skip_list(list)?;
            Ok(Self::Value::default())
        }
    };
    (@ object) => {
        fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
            $crate::lenient::skip_object(object)?;
            Ok(Self::Value::default())
        }
    };
}
pub(crate) use nothing_is;

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    nothing_is!(null, bool, list, object);
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(number.try_into().ok())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        // Whole numbers of this size are exact as fractions.
        let is_count = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        Ok(is_count.then_some(number as u64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.trim().parse().ok())
    }

    nothing_is!(null, bool, list, object);
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Some)
    }

    nothing_is!(null, bool, number, text, list);
}

struct ListVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ListVisitor<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(Object(entry)) = list.next_element()? {
            if entries.len() == MOST {
                return Err(A::Error::custom(format_args!("a list has more than {MOST} entries")));
            }
            entries.extend(entry);
        }
        Ok(entries)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        Ok(vec![T::deserialize(MapAccessDeserializer::new(object))?])
    }

    nothing_is!(null, bool, number, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Wire<'a> {
        #[serde(borrow, deserialize_with = "text")]
        text: Option<Cow<'a, str>>,
        #[serde(deserialize_with = "count")]
        count: Option<u64>,
        #[serde(borrow, deserialize_with = "object")]
        inner: Option<Inner<'a>>,
        #[serde(borrow, deserialize_with = "list::<2, _, _>")]
        list: Vec<Inner<'a>>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner<'a> {
        #[serde(borrow, deserialize_with = "text")]
        text: Option<Cow<'a, str>>,
    }

    fn inner(text: &str) -> Inner<'_> {
        Inner { text: Some(text.into()) }
    }

    #[test]
    fn each_kind_of_value_in_each_place() {
        let text = |text| Wire { text: Some(Cow::Borrowed(text)), ..Wire::default() };
        let count = |count| Wire { count: Some(count), ..Wire::default() };
        let nothing = Wire::default;
        let table = [
            (r#""a""#, [text("a"), nothing(), nothing(), nothing()]),
            (r#""a\n""#, [text("a\n"), nothing(), nothing(), nothing()]),
            (r#"" 7""#, [text(" 7"), count(7), nothing(), nothing()]),
            ("7", [text("7"), count(7), nothing(), nothing()]),
            ("-7", [text("-7"), nothing(), nothing(), nothing()]),
            ("7.0", [text("7"), count(7), nothing(), nothing()]),
            ("7.5", [text("7.5"), nothing(), nothing(), nothing()]),
            ("1e30", [text("1000000000000000000000000000000"), nothing(), nothing(), nothing()]),
            ("null", [nothing(), nothing(), nothing(), nothing()]),
            ("true", [nothing(), nothing(), nothing(), nothing()]),
            ("[]", [nothing(), nothing(), nothing(), nothing()]),
            (
                r#"[{"text": "b"}, 1, [2]]"#,
                [nothing(), nothing(), nothing(), Wire { list: vec![inner("b")], ..nothing() }],
            ),
            (
                r#"{"text": "b", "else": [{}]}"#,
                [
                    nothing(),
                    nothing(),
                    Wire { inner: Some(inner("b")), ..nothing() },
                    Wire { list: vec![inner("b")], ..nothing() },
                ],
            ),
            (
                r#"{"text": {"text": [1]}}"#,
                [
                    nothing(),
                    nothing(),
                    Wire { inner: Some(Inner::default()), ..nothing() },
                    Wire { list: vec![Inner::default()], ..nothing() },
                ],
            ),
        ];
        for (value, expected) in table {
            for (name, expected) in ["text", "count", "inner", "list"].into_iter().zip(expected) {
                let json = format!(r#"{{"before": 1, "{name}": {value}, "behind": 2}}"#);
                let read: Wire<'_> = serde_json::from_str(&json).expect(&json);
                assert_eq!(read, expected, "{json}");
            }
        }
    }

    #[test]
    fn a_list_is_bounded() {
        let error =
            serde_json::from_str::<Wire<'_>>(r#"{"list": [{}, {}, {}]}"#).expect_err("it is too long");
        assert!(error.to_string().starts_with("a list has more than 2 entries"), "{error}");
    }
}
