//! Questions of tools and servers to the user.
//!
//! An answer that is an object is asked for member by member, because nobody knows its JSON by heart, and is shown before it is sent.

use std::io::{self, Write};

use serde_json::{Value, json};
use tool_core::run::Decision;
use tool_core::tool::Question;

use crate::session::Session;

/// A member of an answer that is an object.
struct Field {
    name: String,
    is_required: bool,
    question: Question,
}

impl<W: Write> Session<W> {
    /// Asks the user a question. Choices are numbered, and an empty line declines unless there is a default. Returns `None` at the end of
    /// the input and for Ctrl-C.
    pub(crate) async fn reply(&mut self, question: &Question) -> io::Result<Option<Decision>> {
        self.screen.line(question.text())?;
        if let Some(problem) = question.problem() {
            self.screen.line(&format!("the last answer was refused: {problem}"))?;
        }
        let fields = fields(question);
        if !fields.is_empty() {
            return self.reply_to_form(question, &fields).await;
        }
        let answer = self.read_answer(question, "answer, or nothing to decline", false).await?;
        Ok(answer.map(|answer| answer.map_or_else(Decision::decline, Decision::answer_json)))
    }

    /// Asks for the members of an object.
    async fn reply_to_form(&mut self, question: &Question, fields: &[Field]) -> io::Result<Option<Decision>> {
        loop {
            let mut members = Vec::new();
            for Field { name, is_required, question } in fields {
                if !question.text().is_empty() {
                    self.screen.line(question.text())?;
                }
                // An empty line is the default.
                let may_omit = !is_required && question.default().is_some();
                let optional = match is_required {
                    true => "",
                    false if may_omit => ", or - for nothing",
                    false => ", or nothing",
                };
                let prompt = format!("{name}{}{optional}", kind(question.schema()));
                let value = self.read_answer(question, &prompt, may_omit).await?;
                let Some(value) = value else { return Ok(None) };
                members.extend(value.map(|value| format!("{}: {value}", Value::from(&**name))));
            }
            let answer = format!("{{{}}}", members.join(", "));
            let shown = if question.is_secret() { "the answers" } else { &answer };
            let prompt = format!("Send {shown}? [y]es, [n]o, [a]gain: ");
            loop {
                let Some(key) = self.ask_key(&prompt).await? else { return Ok(None) };
                match &*key {
                    "y" | "yes" => return Ok(Some(Decision::answer_json(answer))),
                    "n" | "no" => return Ok(Some(Decision::decline())),
                    "a" | "again" => break,
                    _ => {}
                }
            }
        }
    }

    /// Reads an answer as JSON text, or the default for an empty line. Returns `None` at the end of the input and for Ctrl-C.
    async fn read_answer(
        &mut self,
        question: &Question,
        prompt: &str,
        may_omit: bool,
    ) -> io::Result<Option<Option<String>>> {
        for (position, (label, _)) in question.labeled_choices().enumerate() {
            self.screen.line(&format!("  {}: {label}", position + 1))?;
        }
        let default = question.default().map(|default| format!(" [{}]", show_value(default)));
        let prompt = format!("{prompt}{}: ", default.unwrap_or_default());
        loop {
            let line = match question.is_secret() {
                true => self.ask_secretly(&prompt).await?,
                false => self.ask(&prompt).await?,
            };
            let Some(line) = line else { return Ok(None) };
            let line = line.trim();
            let chosen =
                line.parse::<usize>().ok().and_then(|number| question.choices().get(number.checked_sub(1)?));
            match (line, chosen, question.choices().is_empty()) {
                ("", ..) => return Ok(Some(question.default().map(Value::to_string))),
                ("-", ..) if may_omit => return Ok(Some(None)),
                (_, Some(choice), _) => return Ok(Some(Some(choice.to_string()))),
                (_, None, false) => self.screen.line("choose by number")?,
                (text, None, true) => return Ok(Some(Some(question.answer_of(text)))),
            }
        }
    }
}

/// Returns the members of an answer that is an object and has no choices, each as a question of its own.
fn fields(question: &Question) -> Vec<Field> {
    let schema = question.schema();
    let properties = schema["properties"].as_object().filter(|_| question.choices().is_empty());
    let field = |(name, property): (&String, &Value)| {
        let definition = property["$ref"].as_str().and_then(|path| schema.pointer(path.strip_prefix('#')?));
        let definition = definition.unwrap_or(property);
        let choices = choices(definition);
        let labels: Vec<_> = titled(definition).filter_map(|one| one["title"].as_str()).collect();
        let described =
            [property, definition].map(|one| one["description"].as_str().or(one["title"].as_str()));
        let suggested = question.default().and_then(|default| default.get(name));
        let question = json!({
            "text": described[0].or(described[1]).unwrap_or_default(),
            "schema": definition,
            "choices": choices,
            "labels": if labels.len() == choices.len() { labels } else { Vec::new() },
            "default": suggested.unwrap_or(&property["default"]),
            "is_secret": question.is_secret(),
        });
        let is_required =
            schema["required"].as_array().is_some_and(|required| required.iter().any(|one| one == name));
        let question = serde_json::from_value(question).ok()?;
        Some(Field { name: name.clone(), is_required, question })
    };
    properties.into_iter().flatten().filter_map(field).collect()
}

/// Returns the constants of a schema, which can have titles.
fn titled(schema: &Value) -> impl Iterator<Item = &Value> {
    let all = ["oneOf", "anyOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten();
    all.filter(|one| one.get("const").is_some())
}

/// Returns the values that a schema allows, if it lists them.
fn choices(schema: &Value) -> Vec<&Value> {
    let values = schema["enum"].as_array().into_iter().flatten();
    values.chain(titled(schema).map(|one| &one["const"])).collect()
}

/// Returns the JSON type that an answer must have, unless it is a text, and what the items of an array can be.
fn kind(schema: &Value) -> String {
    let items: Vec<_> = choices(&schema["items"]).into_iter().map(Value::to_string).collect();
    match schema["type"].as_str().filter(|kind| *kind != "string") {
        Some(kind) if items.is_empty() => format!(" ({kind})"),
        Some(kind) => format!(" ({kind} of {})", items.join(", ")),
        None => String::new(),
    }
}

/// Shows a value on one line: a string without quotes, anything else as JSON.
fn show_value(value: &Value) -> String {
    let text = value.as_str().filter(|text| !text.contains('\n'));
    text.map_or_else(|| value.to_string(), str::to_owned)
}
