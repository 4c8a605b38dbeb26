//! The beginning of a run: a question or a stored run, with what the question brings.

use super::emitter::EventEmitter;
use super::performer::Performer;
use super::question_rules::{QuestionError, QuestionRules};
use super::replay::without_clock;
use super::run_tools::{QuestionTools, RunTools};
use super::spending::Spending;
use crate::agent::Agent;
use crate::content::Content;
use crate::model::{ConversationId, Message, ModelOptions, ResponseFormat, RunUser, ToolChoice};
use crate::run::{Ledger, QuestionSettings, Run, RunId, RunLimits};
use crate::tool::ToolContext;

/// A question to an agent, or a run that it resumes.
pub(super) struct AskedQuestion {
    pub(super) agent: Agent,
    pub(super) start: Start,
    pub(super) tools: QuestionTools,
    pub(super) rules: QuestionRules,
    pub(super) limits: Option<RunLimits>,
    pub(super) emitter: EventEmitter,
    pub(super) response_format: Option<ResponseFormat>,
    pub(super) options: ModelOptions,
    pub(super) tool_choice: Option<ToolChoice>,
}

pub(super) enum Start {
    Question { id: Option<RunId>, instructions: Option<Content>, question: Content, history: Vec<Message> },
    Run(Box<Run>),
}

/// What drives a run at its beginning.
pub(super) struct Begun {
    pub(super) run: Run,
    pub(super) performer: Performer,
    pub(super) rules: QuestionRules,
}

impl Begun {
    pub(super) fn new(mut run: Run, tools: RunTools, emitter: EventEmitter, rules: QuestionRules) -> Self {
        // What another driver had in flight is spent.
        run.begin_request(None);
        let ledger = Ledger::new(run.limits().max_cost, run.cost());
        let mut spending = Spending::new(tools.agent.0.prices.clone(), ledger);
        spending.charge_to(&rules.budgets);
        Self { run, performer: Performer::outermost(tools, emitter, spending), rules }
    }
}

impl AskedQuestion {
    pub(super) fn new(agent: Agent, question: Content) -> Self {
        let (id, instructions, history) = (None, None, Vec::new());
        Self::starting_from(agent, Start::Question { id, instructions, question, history })
    }

    pub(super) fn resume(agent: Agent, run: Run) -> Self {
        Self::starting_from(agent, Start::Run(Box::new(run)))
    }

    pub(super) fn starting_from(agent: Agent, start: Start) -> Self {
        Self {
            start,
            tools: QuestionTools::default(),
            rules: QuestionRules::default(),
            limits: None,
            emitter: EventEmitter::with_hooks(agent.0.hooks.clone()),
            response_format: None,
            options: ModelOptions::default(),
            tool_choice: None,
            agent,
        }
    }

    pub(super) fn change_limits(&mut self, change: impl FnOnce(RunLimits) -> RunLimits) {
        let limits = self.limits.take().unwrap_or_else(|| match &self.start {
            Start::Question { .. } => self.agent.0.limits.clone(),
            Start::Run(run) => run.limits().clone(),
        });
        self.limits = Some(change(limits));
    }

    /// Returns `true` if tools may be offered to the model.
    pub(super) fn may_have_tools(&self) -> bool {
        let has_some = self.tools.offered.as_ref().is_ok_and(|tools| !tools.is_empty());
        let agent = &self.agent.0;
        let has_agents = !agent.tools.is_empty() || !agent.providers.is_empty();
        has_some || (has_agents && !self.tools.replaces)
    }

    /// Creates the run, which is inside of another one unless it is the outermost. All settings of the agent and the question apply.
    pub(super) fn begin(self, is_outermost: bool) -> Begun {
        let Self {
            agent,
            start,
            mut tools,
            mut rules,
            limits,
            mut emitter,
            response_format,
            options,
            tool_choice,
        } = self;
        let mut of_question = QuestionSettings { instructions: None, options: options.clone() };
        let mut run = match start {
            Start::Question { id, instructions, question, history } => {
                of_question.instructions = instructions;
                let mut run = agent.new_run(of_question.clone(), history, question);
                if let Some(id) = id {
                    run = run.with_id(id);
                }
                if is_outermost {
                    run.set_agent_name(agent.name());
                }
                run
            }
            Start::Run(run) => *run,
        };
        if !agent.0.handoffs.is_empty() || agent.0.run_setup.is_some() {
            run = run.with_question_settings(of_question);
        }
        if let Some(limits) = limits {
            run = run.with_limits(limits);
            if is_outermost {
                run.set_own_limits();
            }
        }
        if tools.replaces && is_outermost {
            run.set_only_own_tools();
        }
        if agent.0.stand_in.is_some() {
            let limits = without_clock(run.limits().clone());
            run = run.with_limits(limits);
        }
        if response_format.is_some() {
            run = run.with_response_format(response_format);
        }
        if let Some(choice) = tool_choice {
            run = run.with_tool_choice(choice);
        }
        let options = options.or(run.options());
        let id = |context: &ToolContext| context.provided::<ConversationId>().cloned();
        // The question's takes precedence over the run's, which takes precedence over the agent's.
        let conversation = id(&tools.context).or_else(|| run.conversation().cloned());
        let conversation = conversation.or_else(|| id(&agent.0.context));
        let conversation = conversation.unwrap_or_else(ConversationId::unique);
        tools.context = tools.context.with(conversation.outermost());
        let mut run = run.with_options(options).with_conversation(conversation);
        match (tools.context.provided::<RunUser>().cloned(), run.user().cloned()) {
            (Some(given), Some(own)) if given != own => {
                rules.error = Some(QuestionError("the run belongs to another user".to_owned()));
            }
            (Some(given), None) => run = run.with_user(given),
            (None, Some(own)) => tools.context = tools.context.with(own),
            _ => {}
        }
        if is_outermost {
            emitter.hooks.extend(agent.watch_run(&run));
        }
        Begun::new(run, RunTools::new(agent, tools), emitter, rules)
    }
}
