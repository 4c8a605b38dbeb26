//! JSON Schemas of Rust types, the form that providers accept, and the strict form.

mod kind;
mod number;
mod limits;
mod keywords;
mod rust_types;
mod shape;
mod strict;

pub(crate) use self::keywords::target;
pub(crate) use self::kind::Kind;
pub(crate) use self::limits::{Length, Limits, has_limits};
pub use self::number::Bound;
pub(crate) use self::number::integer;
pub(crate) use self::rust_types::{
    arguments_schema, arguments_schema_for_providers, for_providers, settings,
};
pub(crate) use self::shape::{NodeId, SchemaOf, Shape, ShapeNode};
pub(crate) use self::strict::{Unsupported, strict_form};
