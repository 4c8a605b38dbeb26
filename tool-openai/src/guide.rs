//! Endpoints, and an agent as an endpoint.
//!
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide.md")]

#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/endpoints.md")]
pub mod endpoints {}
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/clouds.md")]
pub mod clouds {}
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/when_the_provider_refuses.md")]
pub mod when_the_provider_refuses {}
#[cfg(feature = "server")]
#[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#[doc = include_str!("../docs/serving.md")]
pub mod serving {}
