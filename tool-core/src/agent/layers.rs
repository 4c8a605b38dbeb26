//! The layers around a run: of its agents, and of the runs around it. Below them is what the run is charged to.
//!
//! The layers of outer agents go with a call to the driver of an inner run, and with its context to an agent that a tool asks in its body,
//! because they must hold there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;

use super::compaction::{LongOutputs, own_limit};
use super::interruption::run_until_interrupted;
use super::lock::lock;
use super::replay::is_unrecorded;
use super::spending::Spending;
use crate::agent::{Agent, Event, RunResources};
use crate::content::Content;
use crate::layer::{
    Accounts, AnswerVerdict, Layer, LayerContext, LayerError, LayerFailure, LayerPhase, QuestionVerdict,
    RecordedCall, Review, RunEnded, Seat, UsageReporter,
};
use crate::model::{ToolDefinition, Usage};
use crate::run::{Run, RunErrorKind, RunLimits, RunView};
use crate::tool::{Judgement, Panicked, RunRules, ToolContext, ToolExecution, VerdictKind, VerdictRecord};

/// The longest time that a layer may take to record what happened to a call.
const RECORD_PATIENCE: Duration = Duration::from_secs(10);

/// The position of the layers that the application gives a run, among the agents of the run.
const OF_RUN: usize = usize::MAX;

/// The layers around a run. Layers are only ever added: by an agent that takes the run over, and by an agent whose call asks another.
#[derive(Clone)]
pub(super) struct Layers {
    /// The run itself, then those that it is inside of, the outermost last.
    levels: Vec<Level>,
    /// The layers of all levels, the outermost level first.
    all: Vec<Placed>,
    /// The names of the agents that lead from the run of each level to this run.
    paths: Vec<Vec<String>>,
    /// What the requests to the models are charged to.
    pub(super) spending: Spending,
    /// What the own requests of layers have used, by their names, until the run has it.
    charges: Arc<Mutex<Vec<(String, Usage)>>>,
}

/// One run.
#[derive(Clone)]
struct Level {
    /// The name of the tool by which the run was asked for, unless it is the outermost.
    called_as: Option<String>,
    handed_off_to: Vec<String>,
    /// The agents that the run is or was of.
    agents: Vec<Agent>,
    /// The layers that the application gives this run.
    of_run: Vec<Arc<dyn Layer>>,
    context: ToolContext,
}

#[derive(Clone)]
struct Placed {
    level: usize,
    /// The position of the layer's agent among the agents of its run.
    agent: usize,
    layer: Arc<dyn Layer>,
}

/// What the layers decided about a reply.
pub(super) enum ReplyRuling {
    Pass,
    Replace(String),
    Retry(String),
    End(VerdictRecord),
}

/// A question that a layer has not judged.
pub(super) struct OpenQuestion {
    placed: Placed,
    /// The name under which the verdict is recorded.
    key: String,
    /// Its position among the questions of the run.
    number: usize,
    question: Content,
}

impl OpenQuestion {
    /// Returns the question in the form that layers asked meanwhile gave it.
    pub(super) fn updated(mut self, run: &Run) -> Self {
        if let Some((_, question)) = run.questions().nth(self.number) {
            self.question.clone_from(question);
        }
        self
    }
}

/// The verdict about a question.
pub(super) struct QuestionRuling {
    pub(super) record: VerdictRecord,
    pub(super) effect: QuestionEffect,
}

/// What follows from the verdict about a question.
pub(super) enum QuestionEffect {
    Pass,
    Rewrite(usize, Content),
    Answer(String),
    End,
}

impl Layers {
    pub(super) fn new(agent: Agent, context: ToolContext, spending: Spending) -> Self {
        let level = Level {
            called_as: None,
            handed_off_to: Vec::new(),
            agents: vec![agent],
            of_run: Vec::new(),
            context,
        };
        let (levels, charges) = (vec![level], Arc::default());
        Self { levels, all: Vec::new(), paths: Vec::new(), spending, charges }.listed()
    }

    /// Adds the layers of the run to which the call with this name belongs.
    pub(super) fn inside(mut self, outer: &Self, called_as: &str) -> Self {
        if let Some(own) = self.levels.last_mut() {
            own.called_as = Some(called_as.to_owned());
        }
        self.levels.extend_from_slice(&outer.levels);
        self.spending.inside(&outer.spending);
        self.listed()
    }

    /// Adds what the application gives the run: its layers inside of the agent's, values for them, and budgets.
    pub(super) fn open(&mut self, context: &ToolContext, parts: &RunResources) {
        if let Some(own) = self.levels.first_mut() {
            own.of_run.clone_from(&parts.layers);
            own.context = context.clone();
        }
        // What is repeated has been paid before.
        if !self.is_repeating() {
            self.spending.charge_to(&parts.budgets);
        }
        *self = self.clone().listed();
    }

    /// Sets what the run may cost.
    pub(super) fn limit(&mut self, limits: &RunLimits) {
        self.spending.limit(limits.max_cost);
    }

    /// Adds the layers and the budgets of an agent that takes the run over.
    pub(super) fn hand_off(&mut self, name: &str, agent: &Agent) {
        if let Some(own) = self.levels.first_mut() {
            own.handed_off_to.push(name.to_owned());
            own.agents.push(agent.clone());
        }
        self.spending.charge_to(&agent.0.budgets);
        *self = self.clone().listed();
    }

    /// Lists the layers in the order in which they are asked.
    fn listed(mut self) -> Self {
        let levels = self.levels.iter().enumerate().rev();
        let agents = levels.flat_map(|(level, run)| {
            let of_run = (level, OF_RUN, &run.of_run);
            let of_agents = run.agents.iter().enumerate();
            of_agents.map(move |(agent, layers)| (level, agent, &layers.0.layers)).chain([of_run])
        });
        let all = agents.flat_map(|(level, agent, layers)| {
            layers.iter().map(move |layer| Placed { level, agent, layer: Arc::clone(layer) })
        });
        self.all = all.collect();
        self.paths = (0..self.levels.len()).map(|level| self.path_from(level)).collect();
        self
    }

    fn that_see(&self, phase: LayerPhase) -> impl Iterator<Item = &Placed> {
        // What is repeated has happened before.
        let is_seen = phase != LayerPhase::Record || !self.is_repeating();
        self.all.iter().filter(move |placed| is_seen && placed.layer.sees(phase))
    }

    /// Returns `true` if the run is repeated from its record.
    fn is_repeating(&self) -> bool {
        self.levels.iter().flat_map(|level| &level.agents).any(|agent| agent.0.stand_in.is_some())
    }

    /// Returns `true` if a layer sees calls before they are executed.
    pub(super) fn see_calls(&self) -> bool {
        [LayerPhase::Offer, LayerPhase::Rewrite, LayerPhase::Judge].into_iter().any(|part| self.see(part))
    }

    /// Returns `true` if a layer sees this phase. Only layers of the run itself see its answer.
    pub(super) fn see(&self, phase: LayerPhase) -> bool {
        let is_shortened = phase == LayerPhase::Output && self.outputs().is_some();
        is_shortened || self.that_see(phase).any(|placed| placed.level == 0 || phase != LayerPhase::Answer)
    }

    /// Returns the name of a layer of the run itself that judges answers.
    pub(super) fn answer_guard(&self) -> Option<&str> {
        self.that_see(LayerPhase::Answer).find(|placed| placed.level == 0).map(|placed| placed.layer.name())
    }

    /// Returns the layers that see the requests to the model, with their places.
    pub(super) fn of_model<'a>(&'a self, run: &'a RunView) -> Vec<(&'a dyn Layer, LayerContext<'a>)> {
        self.that_see(LayerPhase::Model).map(|placed| (&*placed.layer, self.place(placed, run))).collect()
    }

    /// Returns `true` if the model is offered this tool in the turn of the run.
    pub(super) fn offer(&self, tool: &ToolDefinition, run: &RunView) -> Result<bool, RunErrorKind> {
        for placed in self.that_see(LayerPhase::Offer) {
            let place = LayerContext { messages: run.sent_messages(), ..self.place(placed, run) };
            let offers = catch_unwind(AssertUnwindSafe(|| placed.layer.offers(tool, &place)));
            let failed = |error: LayerError| LayerFailure { layer: placed.layer.name().to_owned(), error };
            if !offers.map_err(|panic| failed(Panicked::new(&*panic).into()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the record of the end of a run from within a reply.
    pub(super) fn end_of_reply(&self, ended: RunEnded) -> VerdictRecord {
        let (layer, inside) = ended.by.unwrap_or_default();
        let levels: Vec<_> = self.that_see(LayerPhase::Model).map(|placed| placed.level).collect();
        let level = levels.iter().rev().nth(inside).copied().unwrap_or_default();
        VerdictRecord::new(&layer, level, VerdictKind::Ended).because(ended.reason)
    }

    fn place<'a>(&'a self, placed: &'a Placed, run: &'a RunView) -> LayerContext<'a> {
        LayerContext {
            agents: &self.paths[placed.level],
            turn: run.turn,
            messages: run.messages(),
            executions: run.executions(),
            context: &self.levels[placed.level].context,
            accounts: Some((placed.layer.name(), self)),
            run: Some(run.id.as_str()),
        }
    }

    /// Returns what layers have charged since the last time.
    pub(super) fn take_charges(&self) -> Vec<(String, Usage)> {
        std::mem::take(&mut lock(&self.charges))
    }

    fn seat<'a>(&'a self, placed: &'a Placed, run: &'a RunView) -> Seat<'a> {
        let Placed { level, agent, layer } = placed;
        Seat { layer: &**layer, level: *level, agent: *agent, place: self.place(placed, run) }
    }

    /// Returns the review of the calls of a run by all layers.
    pub(super) fn review<'a>(&'a self, run: &'a RunView) -> Review<'a> {
        Review::new(self.all.iter().map(|placed| self.seat(placed, run))).repeated(self.is_repeating())
    }

    /// Returns the questions that layers of the run have not judged.
    pub(super) fn open_questions(&self, run: &Run, is_beside: bool) -> Vec<OpenQuestion> {
        let own = self.that_see(LayerPhase::Question).filter(|placed| placed.level == 0);
        let own = own.filter(|placed| placed.layer.is_beside() == is_beside);
        let open = own.flat_map(|placed| {
            let key = question_key(placed);
            let has_passed = |verdict: &&VerdictRecord| {
                verdict.layer == key && matches!(verdict.kind, VerdictKind::Passed | VerdictKind::Rewritten)
            };
            let passed = run.verdicts().iter().filter(has_passed).count();
            let open = run.questions().enumerate().skip(passed);
            open.map(move |(number, (_, question))| OpenQuestion {
                placed: placed.clone(),
                key: key.clone(),
                number,
                question: question.clone(),
            })
        });
        open.collect()
    }

    /// Judges a question of a run.
    pub(super) async fn question(
        &self,
        open: &OpenQuestion,
        run: RunView,
    ) -> Result<QuestionRuling, RunErrorKind> {
        let OpenQuestion { placed, key, number, question } = open;
        let verdict = self.seat(placed, &run).ask(question, |layer, it, at| layer.question(it, at)).await?;
        let record = |kind| VerdictRecord::new(key, 0, kind);
        let (record, effect) = match verdict {
            QuestionVerdict::Pass => (record(VerdictKind::Passed), QuestionEffect::Pass),
            QuestionVerdict::Rewrite(_) if placed.layer.is_beside() => {
                let error = "the model already works on the question; rewrite it in a layer that is not beside the model";
                return Err(LayerFailure { layer: key.clone(), error: error.into() }.into());
            }
            QuestionVerdict::Rewrite(question) => {
                (record(VerdictKind::Rewritten), QuestionEffect::Rewrite(*number, question))
            }
            QuestionVerdict::Answer(text) => (record(VerdictKind::Answered), QuestionEffect::Answer(text)),
            QuestionVerdict::End(why) => (record(VerdictKind::Ended).because(why), QuestionEffect::End),
        };
        self.review(&run).report(&record, None).await?;
        Ok(QuestionRuling { record, effect })
    }

    /// Returns the layers that can still rewrite a call.
    fn rewriters<'a>(&'a self, call_id: &'a str, run: &'a Run) -> impl Iterator<Item = &'a Placed> {
        let placed = self.that_see(LayerPhase::Rewrite);
        placed.filter(move |placed| run.can_be_rewritten(call_id, placed.level, placed.layer.name()))
    }

    /// Returns the levels and names of the layers that can still rewrite a call.
    pub(super) fn rewriter_names(&self, call_id: &str, run: &Run) -> Vec<(usize, String)> {
        let names = self.rewriters(call_id, run).map(|placed| (placed.level, placed.layer.name().to_owned()));
        names.collect()
    }

    /// Judges the outcome of a call. Returns the end of the run, if a layer ends it. If a layer fails, the outcome stays as it is.
    pub(super) async fn output(
        &self,
        execution: &mut ToolExecution,
        run: &RunView,
    ) -> Result<Option<VerdictRecord>, RunErrorKind> {
        // A call that would be executed now has no outcome.
        if self.is_repeating() && is_unrecorded(execution) {
            execution.history.judgement = Some(Judgement::Done);
            return Ok(None);
        }
        // The agent that executed a call undoes it; agents that took the run over do not see that.
        let last = run.handoffs_before_undone.unwrap_or(usize::MAX);
        let end = self
            .review(run)
            .output(execution, |seat| seat.level > 0 || seat.agent <= last || seat.agent == OF_RUN)
            .await?;
        execution.history.judgement = Some(Judgement::Done);
        Ok(end)
    }

    /// Judges the outcome of a call, and stores it if it is too long for the model.
    pub(super) async fn output_to_read(
        &self,
        execution: &mut ToolExecution,
        run: RunView,
    ) -> Result<Option<VerdictRecord>, RunErrorKind> {
        let own = own_limit(execution);
        let end = self.output(execution, &run).await?;
        if let Some(outputs) = self.outputs() {
            outputs.shorten(execution, &run.id, own).await?;
        }
        Ok(end)
    }

    /// Returns `true` if layers see this outcome, or it is too long for the model.
    pub(super) fn see_output(&self, execution: &ToolExecution) -> bool {
        self.see(LayerPhase::Output) || self.outputs().is_some_and(|outputs| outputs.is_long(execution))
    }

    /// Returns `true` if a layer can see outcomes of calls, also those that are long alone.
    pub(super) fn may_see_outputs(&self) -> bool {
        self.see(LayerPhase::Output) || self.outputs().is_some()
    }

    /// Returns where long outputs of the run are stored, if the agent that the run is of stores them.
    pub(super) fn outputs(&self) -> Option<LongOutputs> {
        let own = self.levels.first()?.agents.last()?.0.outputs.as_ref()?;
        Some(LongOutputs { limit: own.limit, ..self.stored_outputs()?.clone() })
    }

    /// Returns where outputs of the run can be: in one store, of the first of its agents that has one, because it is read by those that
    /// take the run over, and its outputs are removed with the run.
    pub(super) fn stored_outputs(&self) -> Option<&LongOutputs> {
        self.levels.first()?.agents.iter().find_map(|agent| agent.0.outputs.as_ref())
    }

    /// Judges the text of a reply of the run. Returns the records of what was decided besides the end of the run, too.
    pub(super) async fn reply(
        &self,
        text: &str,
        run: RunView,
    ) -> Result<(Vec<VerdictRecord>, ReplyRuling), RunErrorKind> {
        let (mut records, mut ruling) = (Vec::new(), ReplyRuling::Pass);
        let review = self.review(&run);
        for placed in self.that_see(LayerPhase::Answer).filter(|placed| placed.level == 0) {
            let text = if let ReplyRuling::Replace(text) = &ruling { text } else { text };
            let kind;
            let seat = self.seat(placed, &run);
            (kind, ruling) = match seat.ask(text, |layer, it, at| layer.answer(it, at)).await? {
                AnswerVerdict::Pass => continue,
                AnswerVerdict::Replace(text) => (VerdictKind::Replaced, ReplyRuling::Replace(text)),
                AnswerVerdict::Retry(message) => (VerdictKind::Retried, ReplyRuling::Retry(message)),
                AnswerVerdict::End(why) => {
                    let end = seat.record(VerdictKind::Ended).because(why);
                    review.report(&end, None).await?;
                    return Ok((records, ReplyRuling::End(end)));
                }
            };
            let record = seat.record(kind);
            review.report(&record, None).await?;
            records.push(record);
            if let ReplyRuling::Retry(_) = ruling {
                break;
            }
        }
        Ok((records, ruling))
    }

    /// Reports to the layers what happened to a call, if the event states it.
    pub(super) async fn record(&self, event: &Event, run: &RunView) -> Result<(), RunErrorKind> {
        match event {
            Event::CallDecided(decision) => self.record_entry(RecordedCall::Decided(decision), run).await,
            Event::CallFinished(execution) => self.record_entry(RecordedCall::Finished(execution), run).await,
            _ => Ok(()),
        }
    }

    /// Reports to the layers that record what happened to a call. All of them get the report, also if one fails. Neither a cancellation nor the
    /// limit of the run interrupts them, because they record its end as well.
    pub(super) async fn record_entry(
        &self,
        entry: RecordedCall<'_>,
        run: &RunView,
    ) -> Result<(), RunErrorKind> {
        let mut told = Ok(());
        for placed in self.that_see(LayerPhase::Record) {
            let seat = self.seat(placed, run);
            let recorded = seat.ask(&entry, |layer, entry, at| layer.record(*entry, at)).boxed();
            let recorded = run_until_interrupted(recorded, None, Some(RECORD_PATIENCE)).await;
            told = told.and(recorded.unwrap_or_else(|_| {
                let error = format!("it took longer than {RECORD_PATIENCE:?} to record").into();
                Err(LayerFailure { layer: seat.layer.name().to_owned(), error })
            }));
        }
        Ok(told?)
    }

    /// Returns the names of the agents between the run of a level and this run.
    fn path_from(&self, level: usize) -> Vec<String> {
        let inner = self.levels[..level].iter().rev();
        let inner = inner.flat_map(|inner| inner.called_as.iter().chain(&inner.handed_off_to));
        self.levels[level].handed_off_to.iter().chain(inner).cloned().collect()
    }
}

impl Accounts for Layers {
    fn account(&self, layer: &str) -> UsageReporter {
        let (layer, spending, charges) = (layer.to_owned(), self.spending.clone(), Arc::clone(&self.charges));
        UsageReporter::new(move |usage| {
            spending.charge(usage.cost);
            lock(&charges).push((layer.clone(), usage));
        })
    }
}

impl RunRules for Layers {
    fn charge(&self, layer: &str, usage: Usage) {
        self.account(layer).report(usage);
    }
}

/// Agents that a run is handed off to can have layers of the same name.
fn question_key(placed: &Placed) -> String {
    match placed.agent {
        0 if !placed.layer.name().contains('/') => placed.layer.name().to_owned(),
        OF_RUN => format!("run/{}", placed.layer.name()),
        agent => format!("{agent}/{}", placed.layer.name()),
    }
}
