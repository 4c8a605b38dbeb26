//! The bodies of requests.

mod request_body;
mod fields;

pub(crate) use self::fields::{FieldWriter, reject_reserved};
#[cfg(test)]
pub(crate) use self::request_body::BodyWriter;
pub(crate) use self::request_body::{AppendBuffer, RequestBody};
