#![doc = include_str!("../docs/guide/guide.md")]

#[doc = include_str!("../docs/guide/a_service_with_many_users.md")]
pub mod a_service_with_many_users {}
#[doc = include_str!("../docs/guide/approval.md")]
pub mod approval {}
#[doc = include_str!("../docs/guide/arguments_and_errors.md")]
pub mod arguments_and_errors {}
#[doc = include_str!("../docs/guide/assistants.md")]
pub mod assistants {}
#[doc = include_str!("../docs/guide/composition.md")]
pub mod composition {}
#[doc = include_str!("../docs/guide/declaring_tools.md")]
pub mod declaring_tools {}
#[doc = include_str!("../docs/guide/first_agent.md")]
pub mod first_agent {}
#[doc = include_str!("../docs/guide/langchain.md")]
pub mod langchain {}
#[doc = include_str!("../docs/guide/langchain4j.md")]
pub mod langchain4j {}
#[doc = include_str!("../docs/guide/memory.md")]
pub mod memory {}
#[doc = include_str!("../docs/guide/openai_agents.md")]
pub mod openai_agents {}
#[doc = include_str!("../docs/guide/production_checklist.md")]
pub mod production_checklist {}
#[doc = include_str!("../docs/guide/rig.md")]
pub mod rig {}
#[doc = include_str!("../docs/guide/runs_and_limits.md")]
pub mod runs_and_limits {}
#[doc = include_str!("../docs/guide/spring_ai.md")]
pub mod spring_ai {}
#[doc = include_str!("../docs/guide/streaming_and_uis.md")]
pub mod streaming_and_uis {}
#[doc = include_str!("../docs/guide/tool_search.md")]
pub mod tool_search {}
/// Testing: tools as functions, runs with a scripted model, and a review of descriptions.
#[cfg_attr(feature = "testing", doc = include_str!("../docs/guide/testing.md"))]
#[cfg_attr(not(feature = "testing"), doc = "This page needs the feature `testing`.")]
pub mod testing {}
