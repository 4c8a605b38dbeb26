#![doc = "[differences]: ../../tool_anthropic/guide/differences/index.html"]
#![doc = "[clouds]: ../../tool_openai/guide/clouds/index.html"]
#![doc = "[durable runs]: https://docs.rs/tool-restate"]
#![doc = "[endpoints]: ../../tool_openai/guide/endpoints/index.html"]
#![doc = "[serving]: ../../tool_openai/guide/serving/index.html"]
#![doc = "[when_the_provider_refuses]: ../../tool_openai/guide/when_the_provider_refuses/index.html"]
#![doc = "[postgres]: ../../tool_postgres/guide/index.html"]
#![doc = "[mcp]: ../../tool_mcp/guide/index.html"]
#![doc = "[a whole service]: ../../tool_web/index.html#a-service-with-many-users"]
#![doc = "[the page]: ../../tool_web/index.html#the-page"]
#![doc = "[the terminal]: ../../tool_cli/index.html"]
#![doc = "[web frontends]: ../../tool_web/index.html#web-frontends"]
#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/guide/guide.md")]

// Of several definitions of a label, Markdown takes the first: definitions in `links.md` are for rustdoc, definitions at the end of a
// page for readers of the files.
macro_rules! pages {
    ($($page:ident)*) => {$(
        #[cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
        #[doc = include_str!(concat!("../docs/guide/", stringify!($page), ".md"))]
        pub mod $page {}
    )*};
}

pages! {
    approval
    arguments_and_errors
    asking
    assistants
    composition
    costs
    declaring_tools
    first_agent
    langchain
    langchain4j
    layer_types
    layers_and_guards
    long_runs
    memory
    openai_agents
    production_checklist
    rig
    runs_and_limits
    spring_ai
    streaming_and_uis
    team_tools
    tool_search
    troubleshooting
    upgrading
    your_own_store
}

#[cfg_attr(feature = "testing", doc = "[`ScriptedModel`]: crate::testing::ScriptedModel")]
#[cfg_attr(all(feature = "testing", not(doctest)), doc = include_str!("../docs/links.md"))]
#[cfg_attr(feature = "testing", doc = include_str!("../docs/guide/testing.md"))]
#[cfg_attr(not(feature = "testing"), doc = "This page needs the feature `testing`.")]
pub mod testing {}
