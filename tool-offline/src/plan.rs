//! Plans the calls for a question.
//!
//! 1. The question is split into clauses: at the end of sentences, and at "and" and commas if both sides can stand alone.
//! 2. The words of a clause mention tools. Words that neither name a tool or a parameter nor are stop words are values.
//! 3. The last tool that is mentioned takes the values behind it. Each tool before it takes the result and the values that are left:
//!    "the square root of the sum of 9 and 16".
//! 4. A clause without a tool repeats the tool of the clause before with its own values: "and in Rome?".

use std::ops::Range;

use tool_core::ToolCall;
use tool_core::model::ToolDefinition;

use crate::fill::fill;
use crate::parameters::{Arguments, Parameters};
use crate::question::{Candidate, Question, Source};
use crate::text::{Token, TokenKind};
use crate::words::{ENDS, JOINTS, keywords};

/// The tools that one clause mentions.
const MAX_MENTIONS: usize = 8;

/// A tool with the words that name it.
#[derive(Debug)]
pub(crate) struct Tool<'a> {
    pub(crate) name: &'a str,
    pub(crate) parameters: Parameters,
    name_keywords: Vec<String>,
    /// The words of the description that are not in the name.
    description_keywords: Vec<String>,
}

/// The calls for a question, and what it cannot do of it.
pub(crate) struct Plan<'a> {
    pub(crate) question: &'a Question<'a>,
    pub(crate) tools: &'a [Tool<'a>],
    /// The last result before the question.
    earlier: Option<Candidate>,
    pub(crate) steps: Vec<Step>,
    /// The parts of the question that no tool fits.
    pub(crate) unmatched: Vec<Range<usize>>,
}

/// A planned call.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) tool: usize,
    /// The clause that asks for it; empty for a call that the application forced.
    pub(crate) range: Range<usize>,
    pub(crate) arguments: Arguments,
    pub(crate) outcome: Option<Outcome>,
}

/// The text of a result, or of an error.
pub(crate) type Outcome = Result<String, String>;

/// A call that needs no further result.
#[derive(Debug)]
pub(crate) struct ReadyCall<'a> {
    step: usize,
    pub(crate) name: &'a str,
    pub(crate) arguments: String,
}

/// A tool that a clause mentions, and the first word that does.
#[derive(Clone, Copy, Debug)]
struct Mention {
    tool: usize,
    at: usize,
}

/// The steps of a clause, of which each needs the steps before it, and the values that are left.
struct Chain {
    steps: Vec<Step>,
    unused: Vec<Candidate>,
}

impl<'a> Tool<'a> {
    pub(crate) fn new(definition: &'a ToolDefinition) -> Self {
        let description = definition.description().unwrap_or_default();
        let parameters = Parameters::new(definition.parameters(), description);
        let mut name_keywords = keywords(definition.name());
        name_keywords.dedup();
        let description_keywords =
            keywords(description).into_iter().filter(|keyword| !name_keywords.contains(keyword)).collect();
        Self { name: definition.name(), parameters, name_keywords, description_keywords }
    }

    /// Returns `true` if the word is no value for the tool, because it names the tool, a parameter or a choice.
    fn explains(&self, question: &Question<'_>, at: usize) -> bool {
        let Token { keyword, text, .. } = &question.tokens[at];
        let is_lower = !text.starts_with(char::is_uppercase);
        self.name_keywords.contains(keyword)
            || self.parameters.explains(keyword)
            || is_lower && self.description_keywords.contains(keyword)
    }

    /// Returns the words that mention the tool, and how well they do. Words of its name that are missing count against it.
    fn mention(
        &self,
        question: &Question<'_>,
        words: &[usize],
        must_be_named: bool,
    ) -> Option<(Vec<usize>, f64)> {
        let find =
            |keyword: &String| words.iter().copied().find(|at| question.tokens[*at].keyword == *keyword);
        let named: Vec<_> = self.name_keywords.iter().filter_map(find).collect();
        let missing = self.name_keywords.len() - named.len();
        if must_be_named && (missing > 0 || named.is_empty()) {
            return None;
        }
        let described: Vec<_> = self.description_keywords.iter().filter_map(find).collect();
        // Between tools with names of one meaning, such as `add` and `sum`, the one in the question's own words is meant.
        let name = self.name.to_lowercase();
        let literal =
            named.iter().filter(|at| name.contains(&question.tokens[**at].text.to_lowercase())).count();
        let score = 2.0 * named.len() as f64 + 0.5 * literal as f64 + described.len() as f64 - missing as f64;
        let used = if named.is_empty() { described } else { named };
        (score > 0.0).then_some((used, score))
    }
}

impl<'a> Plan<'a> {
    /// Plans the calls. With `must_call`, a tool is called even if the question mentions none.
    pub(crate) fn new(
        question: &'a Question<'a>,
        tools: &'a [Tool<'a>],
        earlier: Option<Candidate>,
        must_call: bool,
    ) -> Self {
        let mut plan = Self { question, tools, earlier, steps: Vec::new(), unmatched: Vec::new() };
        for sentence in plan.split(question.all(), ENDS) {
            let mut pieces = plan.split(sentence, JOINTS).into_iter();
            let Some(mut clause) = pieces.next() else { continue };
            for piece in pieces {
                if plan.stand_alone(&clause, &piece) {
                    plan.add(clause);
                    clause = piece;
                } else {
                    clause.end = piece.end;
                }
            }
            plan.add(clause);
        }
        if must_call && plan.steps.is_empty() {
            let mut chains =
                (0..tools.len()).map(|tool| plan.chain(&question.all(), &[Mention { tool, at: 0 }], None));
            plan.steps = chains.find(Chain::is_complete).map_or_else(Vec::new, |chain| chain.steps);
        }
        plan
    }

    /// Returns the calls that have no outcome yet and lack neither a value nor a result.
    pub(crate) fn ready_calls(&self) -> Vec<ReadyCall<'a>> {
        let result = |step: usize| self.steps[step].outcome.as_ref()?.as_deref().ok();
        let call = |(index, step): (usize, &Step)| {
            let tool = &self.tools[step.tool];
            let arguments = tool.parameters.to_json(&step.arguments, result)?.to_string();
            Some(ReadyCall { step: index, name: tool.name, arguments })
        };
        let is_open = |step: &Step| step.outcome.is_none() && step.arguments.missing.is_empty();
        self.steps.iter().enumerate().filter(|(_, step)| is_open(step)).filter_map(call).collect()
    }

    /// Records the outcome of a call for the steps that are ready for it. A call that is not of the plan, because the application
    /// forced it, becomes a step.
    pub(crate) fn record(&mut self, call: &ToolCall, outcome: &Outcome) {
        let mut ready = self.ready_calls();
        ready.retain(|one| one.name == call.name);
        if ready.iter().any(|one| one.arguments == call.arguments) {
            // Equal calls are executed once.
            ready.retain(|one| one.arguments == call.arguments);
        } else {
            // An approval can change the arguments.
            ready.truncate(1);
        }
        for one in &ready {
            self.steps[one.step].outcome = Some(outcome.clone());
        }
        let tool = self.tools.iter().position(|tool| tool.name == call.name);
        if let Some(tool) = tool.filter(|_| ready.is_empty()) {
            let (arguments, outcome) = (Arguments::default(), Some(outcome.clone()));
            self.steps.push(Step { tool, range: 0..0, arguments, outcome });
        }
    }

    /// Splits a range at the words of a list, without empty parts.
    fn split(&self, range: Range<usize>, borders: &str) -> Vec<Range<usize>> {
        let places: Vec<_> = range.collect();
        let parts = places.split(|at| self.question.is_in(borders, *at));
        parts.filter_map(|part| Some(*part.first()?..*part.last()? + 1)).collect()
    }

    /// Returns `true` if two parts of a sentence are clauses: a call that lacks nothing, and another one.
    fn stand_alone(&self, clause: &Range<usize>, piece: &Range<usize>) -> bool {
        let last = self.steps.last().map(|step| step.tool);
        let Some(chain) = self.read(clause, last, None).filter(Chain::is_complete) else { return false };
        let tool = chain.steps.last().map(|step| step.tool);
        !self.mentions(piece).is_empty() || self.read(piece, tool, None).is_some()
    }

    fn has_content(&self, range: &Range<usize>) -> bool {
        self.question.tokens[range.clone()].iter().any(Token::has_content)
    }

    fn add(&mut self, clause: Range<usize>) {
        let number = self.steps.len().checked_sub(1);
        let previous = number.map(|number| Candidate::result(Source::Step(number), clause.start));
        let last = self.steps.last().map(|step| step.tool);
        match self.read(&clause, last, previous) {
            Some(chain) => self.steps.extend(chain.steps),
            None if self.has_content(&clause) => self.unmatched.push(clause),
            None => {}
        }
    }

    /// Returns the steps of a clause that is understood: by the tools that it mentions, or as values for the tool of the clause before.
    fn read(&self, clause: &Range<usize>, last: Option<usize>, previous: Option<Candidate>) -> Option<Chain> {
        let mentions = self.mentions(clause);
        if mentions.is_empty() {
            let chain = self.chain(clause, &[Mention { tool: last?, at: clause.start }], previous);
            let has_values = chain.is_complete() && self.has_content(clause);
            return (has_values && chain.unused.is_empty()).then_some(chain);
        }
        let chain = self.chain(clause, &mentions, previous);
        let is_value =
            |candidate: &Candidate| matches!(candidate.kind, Some(TokenKind::Number | TokenKind::Quoted));
        // In "2 + 3 * 4", the last operator lacks a value.
        let [inner @ .., _] = &chain.steps[..] else { return None };
        let is_understood =
            inner.iter().all(|step| step.arguments.missing.is_empty()) && !chain.unused.iter().any(is_value);
        is_understood.then_some(chain)
    }

    /// Returns the tools that a range mentions, in the order of the words. The one that fits best decides which words are left for
    /// the others.
    fn mentions(&self, range: &Range<usize>) -> Vec<Mention> {
        let mut words: Vec<_> =
            range.clone().filter(|at| !self.question.tokens[*at].keyword.is_empty()).collect();
        let mut mentions = Vec::new();
        while mentions.len() < MAX_MENTIONS {
            let mention = |(tool, one): (usize, &Tool<'_>)| {
                let (used, score) = one.mention(self.question, &words, !mentions.is_empty())?;
                Some((tool, used, score))
            };
            let found = self.tools.iter().enumerate().filter_map(mention);
            // The first tool wins a tie.
            let Some((tool, used, _)) = found.reduce(|best, next| if next.2 > best.2 { next } else { best })
            else {
                break;
            };
            words.retain(|at| !used.contains(at));
            mentions.extend(used.into_iter().min().map(|at| Mention { tool, at }));
        }
        mentions.sort_by_key(|mention| mention.at);
        mentions
    }

    /// Returns one step per mention, the innermost first. The outermost also takes the values before it, and the previous result for
    /// a value that is missing: "Add 9 and 16, then subtract 5."
    fn chain(&self, range: &Range<usize>, mentions: &[Mention], previous: Option<Candidate>) -> Chain {
        let is_explained =
            |at| mentions.iter().any(|mention| self.tools[mention.tool].explains(self.question, at));
        let reference = previous.as_ref().or(self.earlier.as_ref());
        let mut values = self.question.candidates(range, is_explained, reference);
        let mut steps = Vec::new();
        for (index, mention) in mentions.iter().enumerate().rev() {
            let fill = |candidates: &[Candidate]| {
                fill(&self.tools[mention.tool].parameters, self.question, range, candidates)
            };
            let behind = values.partition_point(|candidate| index > 0 && candidate.at < mention.at);
            let mut candidates = values.split_off(behind);
            let (mut arguments, mut unused) = fill(&candidates);
            if index == 0 && !arguments.missing.is_empty() {
                candidates.splice(0..0, previous.clone());
                (arguments, unused) = fill(&candidates);
            }
            values.push(Candidate::result(Source::Step(self.steps.len() + steps.len()), mention.at));
            values.extend(unused);
            steps.push(Step { tool: mention.tool, range: range.clone(), arguments, outcome: None });
        }
        values.retain(|candidate| candidate.kind.is_some());
        Chain { steps, unused: values }
    }
}

impl Chain {
    fn is_complete(&self) -> bool {
        self.steps.iter().all(|step| step.arguments.missing.is_empty())
    }
}
