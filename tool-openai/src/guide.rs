//! Endpoints, and an agent as an endpoint.
//!
#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../docs/guide.md")]

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/endpoints.md")]
pub mod endpoints {}
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/when_the_provider_refuses.md")]
pub mod when_the_provider_refuses {}
#[cfg(feature = "server")]
#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/serving.md")]
pub mod serving {}
