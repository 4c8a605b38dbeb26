//! Assistants: the questions that their methods ask, what they return, and doubles for tests.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tool_core::agent::{Ask, EventStream, TypedAsk};
use tool_core::content::{Content, Image, Part};
use tool_core::memory::InMemoryStore;
use tool_core::model::{ChatRequest, ConversationId};
use tool_core::run::StopReason;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Answer, ChatMemory, Event, Message, RunError, RunErrorKind, assistant, tool, tools};

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Sight {
    name: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mood {
    Happy,
    Sad,
}

type Text = String;
type Reply<T> = Result<T, RunError>;

/// The user of a run.
struct Customer(&'static str);

#[tool("Returns the name of the customer")]
fn customer_name(#[inject] customer: &Arc<Customer>) -> &'static str {
    customer.0
}

#[tool("Returns the weather")]
fn weather() -> &'static str {
    "sunny"
}

#[assistant("You plan trips.", agent = TripAgent)]
trait TripPlanner {
    /// Returns sights worth a visit.
    #[ask("Suggest three sights in {city} for somebody interested in {interests}.")]
    async fn sights(&self, city: &str, interests: &[String]) -> Result<Vec<Sight>, RunError>;

    #[ask("Is this review positive?\n\n{review}")]
    async fn is_positive(&self, review: &str) -> Result<bool, RunError>;

    #[ask]
    async fn chat(
        &self,
        #[conversation] id: &str,
        message: &str,
        #[inject] customer: Arc<Customer>,
    ) -> Result<Answer, RunError>;

    #[ask("Tell the story of {city}.")]
    fn story(&self, city: &str) -> EventStream;

    #[ask("{mood} {other:?} {{mood}} {count} {letter} {owned} {missing}")]
    async fn pieces(
        &self,
        mood: Mood,
        other: &Mood,
        count: f32,
        letter: char,
        owned: Cow<'_, str>,
        missing: Option<u8>,
    ) -> Reply<Text>;

    #[ask("How many?")]
    async fn count(&self) -> Result<Option<u32>, Box<dyn std::error::Error>>;

    #[ask("How is {who}?")]
    async fn mood(&self, who: &Text) -> Reply<Mood>;

    #[ask(file = "prompts/describe.md")]
    fn describe(&self, city: String) -> Ask;

    #[ask("{r#type}")]
    fn typed(&self, r#type: &str) -> TypedAsk<u8>;

    #[ask]
    fn look(&self, photo: Content) -> Ask;

    /// Returns the first sight.
    async fn best(&self, city: &str) -> Result<Option<Sight>, RunError> {
        Ok(self.sights(city, &[]).await?.into_iter().next())
    }

    fn name_of_city(&self) -> &'static str {
        "Rome"
    }
}

fn agent<A: From<Agent>>(model: ScriptedModel) -> A {
    Agent::builder(model).build().unwrap().into()
}

/// Returns a model that expects this text as the last message.
fn expecting(text: &'static str) -> ScriptedModel {
    ScriptedModel::new().expects(move |request| {
        let messages = request.messages();
        assert_eq!(messages[0].text(), "You plan trips.");
        assert_eq!(messages.last().unwrap().text(), text);
        true
    })
}

#[assistant("You guide {user:?} through {city} as {{guide}}.", agent = GuideAgent)]
trait Guide {
    #[ask("Where is {place}?")]
    fn find(&self, city: &str, place: &str, user: &Mood) -> Ask;

    #[ask]
    fn talk(&self, user: &Mood, message: &str, city: &str) -> Ask;

    #[ask("Is {city} old?")]
    fn is_old(&self, city: &str, #[inject] user: Mood) -> Ask;
}

#[tokio::test]
async fn instructions_contain_parameters_of_the_method() {
    type Ask<'a> = fn(&GuideAgent) -> tool_core::agent::Ask;
    let table: [(Ask<'_>, &str, &str); 3] = [
        (
            |agent| agent.find("Rome", "the {city}", &Mood::Happy),
            "Happy through Rome",
            "Where is the {city}?",
        ),
        (|agent| agent.talk(&Mood::Sad, "Hello", "{user}"), "Sad through {user}", "Hello"),
        (|agent| agent.is_old("Bonn", Mood::Happy), "Happy through Bonn", "Is Bonn old?"),
    ];
    for (ask, instructions, question) in table {
        let model = ScriptedModel::new().says("Yes.");
        let agent = Agent::builder(model.clone()).instructions("Be brief.").build().unwrap();
        ask(&agent.into()).await.unwrap();
        let messages = &model.requests()[0];
        let expected = format!("You guide {instructions} as {{guide}}.\n\nBe brief.");
        assert_eq!((&*messages[0].text(), &*messages[1].text()), (&*expected, question));
    }
}

#[tokio::test]
async fn asks_by_template_and_returns_the_type() {
    let model =
        expecting(r#"Suggest three sights in {interests} "x" for somebody interested in ["art","{city}"]."#)
            .calls("final_answer", r#"{"answer": [{"name": "Colosseum"}]}"#);
    let interests = ["art".to_owned(), "{city}".to_owned()];
    let sights = agent::<TripAgent>(model).sights("{interests} \"x\"", &interests).await.unwrap();
    assert_eq!(sights, [Sight { name: "Colosseum".into() }]);

    let model = expecting("Is this review positive?\n\nNo.").calls("final_answer", r#"{"answer": false}"#);
    assert!(!agent::<TripAgent>(model).is_positive("No.").await.unwrap());

    let model = expecting("How many?").calls("final_answer", r#"{"answer": null}"#);
    assert_eq!(agent::<TripAgent>(model).count().await.unwrap(), None);

    let model = expecting("How is Ada?").calls("final_answer", r#"{"answer": "happy"}"#);
    assert_eq!(agent::<TripAgent>(model).mood(&"Ada".into()).await.unwrap(), Mood::Happy);
}

#[tokio::test]
async fn writes_texts_as_they_are_and_other_values_as_json() {
    let model = expecting("sad Happy {mood} 0.1 ß \"{x}\"\n null").says("Fine.");
    let text =
        agent::<TripAgent>(model).pieces(Mood::Sad, &Mood::Happy, 0.1, 'ß', "\"{x}\"\n".into(), None).await;
    assert_eq!(text.unwrap(), "Fine.");
}

#[tokio::test]
async fn reads_the_template_of_a_file_without_its_last_line_break() {
    let model = expecting("Describe Graz.\nBe brief, {please}.").says("Green.");
    let answer = agent::<TripAgent>(model).describe("Graz".to_owned()).await.unwrap();
    assert_eq!(answer.text(), "Green.");
}

#[tokio::test]
async fn passes_conversation_and_context() {
    let model = expecting("Who am I?")
        .calls("customer_name", "{}")
        .says("Ada.")
        .expects(|request| request.messages().len() == 6)
        .says("As before.");
    let agent = Agent::builder(model)
        .tools(tools![customer_name])
        .memory(ChatMemory::new(InMemoryStore::new()))
        .build()
        .unwrap();
    let agent = TripAgent::from(agent);
    let answer = agent.chat("7", "Who am I?", Arc::new(Customer("Ada"))).await.unwrap();
    assert_eq!(answer.tool_executions()[0].output().unwrap().to_string(), "Ada");
    let answer = agent.chat("7", "And now?", Arc::new(Customer("Eve"))).await.unwrap();
    assert_eq!(answer.text(), "As before.");
}

#[tokio::test]
async fn methods_without_async_return_the_question() {
    let mut story = agent::<TripAgent>(expecting("Tell the story of Rome.").says("Once.")).story("Rome");
    let mut texts = Vec::new();
    while let Some(event) = story.next().await {
        if let Event::Text(text) = event.unwrap() {
            texts.push(text);
        }
    }
    assert_eq!(texts.concat(), "Once.");

    let model = expecting("three").calls("final_answer", r#"{"answer": 3}"#);
    let (number, answer) = agent::<TripAgent>(model).typed("three").with_answer().await.unwrap();
    assert_eq!((number, answer.turns()), (3, 1));

    let model = ScriptedModel::new()
        .expects(|request| matches!(&request.messages()[1], Message::User(content) if content.images().count() == 1))
        .says("A cat.");
    let photo = Image::from_url("https://example.org/cat.jpg");
    let photo = Content::from_iter([Part::from("What is this?"), Part::from(photo)]);
    assert_eq!(agent::<TripAgent>(model).look(photo).await.unwrap().text(), "A cat.");
}

#[tokio::test]
async fn instructions_precede_those_of_the_agent() {
    let model = ScriptedModel::new()
        .expects(|request: &ChatRequest<'_>| {
            let texts: Vec<_> = request.messages().iter().map(|message| message.text()).collect();
            assert_eq!(texts, ["You plan trips.\n\nSpeak French.", "Describe Graz.\nBe brief, {please}."]);
            true
        })
        .says("Vert.");
    let agent = Agent::builder(model).instructions("Speak French.").build().unwrap();
    TripAgent::from(agent).describe("Graz".into()).await.unwrap();
}

/// Works with any planner.
async fn plan(planner: &impl TripPlanner) -> Result<Option<Sight>, RunError> {
    planner.best(planner.name_of_city()).await
}

/// The futures of all methods are `Send`, and so are those that borrow the planner.
fn spawn_plan(planner: impl TripPlanner + 'static) -> JoinHandle<Result<Option<Sight>, RunError>> {
    tokio::spawn(async move { plan(&planner).await })
}

#[tokio::test]
async fn methods_with_a_body_use_the_others() {
    let model = expecting("Suggest three sights in Rome for somebody interested in [].")
        .calls("final_answer", r#"{"answer": [{"name": "Colosseum"}, {"name": "Forum"}]}"#);
    let agent: TripAgent = agent(model);
    let planned = spawn_plan(agent).await.unwrap();
    assert_eq!(planned.unwrap().unwrap().name, "Colosseum");
}

#[assistant(agent = OptionsAgent)]
trait Options {
    #[ask(
        "Go.",
        temperature = 0.5,
        top_p = 0.9,
        max_output_tokens = 100,
        seed = -7,
        reasoning_effort = "low",
        model = "small",
        max_turns = 1,
        tools(weather)
    )]
    async fn all(&self) -> Result<String, RunError>;

    #[ask("Go.", only_tools(weather))]
    async fn only(&self) -> Result<String, RunError>;

    #[ask("Go.", response = "tool")]
    async fn by_tool(&self) -> Result<u8, RunError>;

    #[ask("Go.", response = "tool")]
    async fn text_by_tool(&self) -> Result<String, RunError>;
}

#[tokio::test]
async fn options_apply_to_one_method() {
    let names = |request: &ChatRequest<'_>| {
        request.tools().iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>()
    };
    let model = ScriptedModel::new()
        .expects(move |request| {
            let options = request.options();
            assert_eq!((options.temperature, options.top_p, options.seed), (Some(0.5), Some(0.9), Some(-7)));
            assert_eq!(options.max_output_tokens, Some(100));
            assert_eq!(options.reasoning_effort.as_deref(), Some("low"));
            assert_eq!(options.model.as_deref(), Some("small"));
            assert_eq!(names(request), ["customer_name", "weather"]);
            assert_eq!(request.messages().len(), 1, "there are no instructions");
            true
        })
        .calls("weather", "{}")
        .expects(move |request| names(request) == ["weather"] && request.options().temperature.is_none())
        .says("Done.");
    let agent = Agent::builder(model)
        .tools(tools![customer_name])
        .context(Arc::new(Customer("Ada")))
        .limits(|l| l.max_total_tokens(1_000_000))
        .build()
        .unwrap();
    let agent = OptionsAgent::from(agent);
    let error = agent.all().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(1))));
    assert_eq!(error.run().limits().max_total_tokens, Some(1_000_000));
    assert_eq!(agent.only().await.unwrap(), "Done.");
}

#[tokio::test]
async fn a_typed_answer_by_tool_is_not_constrained() {
    let model = || {
        ScriptedModel::new().expects(|request| {
            request.response_format().is_none() && request.tools()[0].name() == "final_answer"
        })
    };
    let with_formats = |model| {
        let agent = Agent::builder(crate::typed::WithFormats { model, with_tools: true }).build().unwrap();
        OptionsAgent::from(agent)
    };
    let agent = with_formats(model().calls("final_answer", r#"{"answer": 3}"#));
    assert_eq!(agent.by_tool().await.unwrap(), 3);
    let agent = with_formats(model().calls("final_answer", r#"{"answer": "x"}"#));
    assert_eq!(agent.text_by_tool().await.unwrap(), "x");
}

/// A value that refuses to be serialized.
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not today"))
    }
}

#[assistant(agent = BrokenAgent)]
trait Broken {
    #[ask("A {value}, and {id}")]
    fn ask_it(&self, value: Unwritable, #[conversation] id: &ConversationId) -> Ask;
}

#[tokio::test]
async fn a_value_that_cannot_be_written_is_an_error_and_no_request() {
    let agent: BrokenAgent = agent(ScriptedModel::new());
    let error = agent.ask_it(Unwritable, &ConversationId::new("7")).await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Question(_)));
    assert!(!error.is_resumable());
    let expected = "the question cannot be asked: the value of `value` cannot be written: not today";
    assert_eq!(error.to_string(), expected);
    let mut run = agent.ask_it(Unwritable, &ConversationId::new("7")).start();
    assert!(matches!(run.next().await.unwrap_err().kind(), RunErrorKind::Question(_)));
}

/// A double for tests, written by hand.
struct Double;

#[assistant(agent = SmallAgent)]
pub(crate) trait Small {
    #[ask("Describe {city}.")]
    async fn portray(&self, city: &str) -> anyhow::Result<String>;
}

impl Small for Double {
    async fn portray(&self, city: &str) -> anyhow::Result<String> {
        anyhow::ensure!(city != "Atlantis", "there is no {city}");
        Ok(format!("{city} is nice."))
    }
}

async fn describe_both(assistant: impl Small) -> (String, String) {
    let error = assistant.portray("Atlantis").await.err().map(|error| error.to_string());
    (assistant.portray("Graz").await.unwrap(), error.unwrap_or_default())
}

#[tokio::test]
async fn a_double_implements_the_trait_by_hand() {
    let (text, error) = describe_both(Double).await;
    assert_eq!((&*text, &*error), ("Graz is nice.", "there is no Atlantis"));
    let model = ScriptedModel::new().fails("the line is dead").says("Green.");
    let (text, error) = describe_both(agent::<SmallAgent>(model)).await;
    assert_eq!((&*text, &*error), ("Green.", "the request to the model failed: the line is dead"));
}

#[assistant(agent = WorkshopAgent)]
trait Workshop {
    /// `Agent` has a method of this name.
    #[ask]
    fn ask(&self, message: &str) -> Ask;

    /// `Small` has a method of this name.
    #[ask("Portray {city} in oil.")]
    async fn portray(&self, city: &str) -> Result<String, RunError>;
}

#[tokio::test]
async fn traits_with_the_same_methods_are_implemented_by_structs_of_their_own() {
    let model = ScriptedModel::new().says("Hello.").says("Green.").says("An oil painting.");
    let agent = Agent::builder(model.clone()).build().unwrap();
    let workshop = WorkshopAgent::from(agent.clone());
    assert_eq!(workshop.clone().ask("Hi").await.unwrap().text(), "Hello.");
    assert_eq!(SmallAgent::from(agent.clone()).portray("Graz").await.unwrap(), "Green.");
    assert_eq!(workshop.portray("Graz").await.unwrap(), "An oil painting.");
    let asked = model.requests().into_iter().map(|messages| messages[0].text().into_owned());
    assert_eq!(asked.collect::<Vec<_>>(), ["Hi", "Describe Graz.", "Portray Graz in oil."]);
    assert_eq!(format!("{workshop:?}"), format!("WorkshopAgent({agent:?})"));
}
