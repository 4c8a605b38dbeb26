//! Deserialization that notices the members of structs which a type ignores.
//!
//! `serde_ignored` does this too, but copies every name that it reads, and each call would pay for that. For the same reason,
//! everything here is inlined: the typed reading then executes as many instructions as without it.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::value::RawValue;

/// The maximum number of ignored members that are recorded. Further ones are not noticed.
const MAX_IGNORED: usize = 64;

/// A member that a type ignores.
#[derive(Debug)]
pub(super) struct Ignored<'de> {
    pub(super) value: &'de str,
    /// The names of the members that its struct has.
    pub(super) known: &'static [&'static str],
}

/// The enclosing struct of a value, if the value is a member of one, and the ignored members of all structs.
#[derive(Clone, Copy)]
pub(super) struct Scope<'i, 'de> {
    names: Option<&'static [&'static str]>,
    ignored: &'i RefCell<Vec<Ignored<'de>>>,
}

impl<'i, 'de> Scope<'i, 'de> {
    #[inline]
    pub(super) fn new(ignored: &'i RefCell<Vec<Ignored<'de>>>) -> Self {
        Self { names: None, ignored }
    }

    #[inline]
    fn of_struct(self, names: &'static [&'static str]) -> Self {
        Self { names: Some(names), ..self }
    }

    #[inline]
    fn of_map(self) -> Self {
        Self { names: None, ..self }
    }
}

/// A deserializer or a visitor that records ignored members of structs.
pub(super) struct Watched<'s, 'i, 'de, T> {
    inner: T,
    // A reference, because this is passed on for each value.
    scope: &'s Scope<'i, 'de>,
}

impl<'s, 'i, 'de, T> Watched<'s, 'i, 'de, T> {
    #[inline]
    pub(super) fn new(inner: T, scope: &'s Scope<'i, 'de>) -> Self {
        Self { inner, scope }
    }
}

/// Deserializes values that have no members with the unchanged visitor.
macro_rules! deserialize_scalars {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method(visitor)
        }
    )*};
}

/// Deserializes values that can have members with a watched visitor.
macro_rules! deserialize_containers {
    ($($method:ident($($parameter:ident: $type:ty),*))*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, $($parameter: $type,)* visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method($($parameter,)* Watched::new(visitor, self.scope))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Watched<'_, '_, 'de, D> {
    type Error = D::Error;

    deserialize_scalars! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    deserialize_containers! {
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let scope = self.scope.of_map();
        self.inner.deserialize_any(Watched::new(visitor, &scope))
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let scope = self.scope.of_map();
        self.inner.deserialize_map(Watched::new(visitor, &scope))
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let scope = self.scope.of_struct(fields);
        self.inner.deserialize_struct(name, fields, Watched::new(visitor, &scope))
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let Some(known) = self.scope.names else { return self.inner.deserialize_ignored_any(visitor) };
        let value = <&'de RawValue>::deserialize(self.inner)?;
        let mut ignored = self.scope.ignored.borrow_mut();
        if ignored.len() < MAX_IGNORED {
            ignored.push(Ignored { value: value.get(), known });
        }
        visitor.visit_unit()
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit_scalars {
    ($($method:ident($type:ty))*) => {$(
        #[inline]
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watched<'_, '_, 'de, V> {
    type Value = V::Value;

    #[inline]
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit_scalars! {
        visit_bool(bool) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64) visit_char(char) visit_str(&str) visit_borrowed_str(&'de str)
        visit_string(String) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Watched::new(deserializer, self.scope))
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Watched::new(deserializer, self.scope))
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Watched::new(list, self.scope))
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Watched::new(object, self.scope))
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Watched::new(variant, self.scope))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Watched<'_, '_, 'de, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = Watched::new(deserializer, self.scope);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Watched<'_, '_, 'de, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(Watched::new(seed, self.scope))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Watched<'_, '_, 'de, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = Watched::new(seed, self.scope);
        self.inner.next_value_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'s, 'i, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Watched<'s, 'i, 'de, A> {
    type Error = A::Error;
    type Variant = Watched<'s, 'i, 'de, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, variant) = self.inner.variant_seed(seed)?;
        Ok((name, Watched::new(variant, self.scope)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Watched<'_, '_, 'de, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Watched::new(seed, self.scope))
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, Watched::new(visitor, self.scope))
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let scope = self.scope.of_struct(fields);
        self.inner.struct_variant(fields, Watched::new(visitor, &scope))
    }
}
