//! What everybody's every step does in every state of the place for an engine, as a table.

use super::*;

#[derive(Clone, Copy)]
enum Step {
    /// An engine that fits comes.
    Fit,
    /// One of another version does.
    Misfit,
    /// The attached one speaks of what there isn't.
    Break,
    /// The role can't use the attached one.
    Unwanted,
    /// The attached one goes.
    Leave,
}

use Step::{Break, Fit, Leave, Misfit, Unwanted};

const STATES: [(&str, &[Step]); 6] = [
    ("nobody yet", &[]),
    ("one refused", &[Misfit]),
    ("one attached", &[Fit]),
    ("one gone", &[Fit, Leave]),
    ("one sent away for a broken rule", &[Fit, Break]),
    ("one the role refused", &[Fit, Unwanted]),
];

const STEPS: [(&str, Step); 5] = [
    ("fitting engine", Fit),
    ("misfit", Misfit),
    ("broken rule", Break),
    ("role's refusal", Unwanted),
    ("end of stream", Leave),
];

struct World {
    fixture: Fixture,
    attached: Option<(FakeEngine, Attached)>,
}

impl World {
    async fn reach(steps: &[Step]) -> Self {
        let mut world = Self {
            fixture: Fixture::new(Role::Decode),
            attached: None,
        };
        for step in steps {
            world.apply(*step).await;
        }
        world
    }

    /// What whoever came is told; nothing where there is nobody to take the step.
    async fn apply(&mut self, step: Step) -> String {
        match step {
            Fit => self.come().await,
            Misfit => {
                let other = Attach {
                    api_version: 2,
                    ..decode()
                };
                let refused = self.fixture.attach(other).await.err().unwrap();
                let why = refused.message();
                let told = |state: &Attachment| state.error.as_deref() == Some(why);
                self.fixture.attachment_is(told).await;
                format!("refused: {why}")
            }
            Break | Unwanted | Leave => match self.attached.take() {
                Some((engine, attached)) => self.end(step, engine, attached).await,
                None => "-".to_owned(),
            },
        }
    }

    async fn come(&mut self) -> String {
        let come = soon(async {
            loop {
                match self.fixture.attach(decode()).await {
                    // The place is free a moment after that is told.
                    Err(_) if self.attached.is_none() => tokio::task::yield_now().await,
                    come => break come,
                }
            }
        });
        match come.await {
            Ok(engine) => {
                let attached = soon(self.fixture.engines.recv()).await.unwrap();
                let told = |state: &Attachment| state.engine.is_some();
                self.fixture.attachment_is(told).await;
                self.attached = Some((engine, attached));
                "taken".to_owned()
            }
            Err(refused) => format!("refused: {}", refused.message()),
        }
    }

    async fn end(&mut self, step: Step, mut engine: FakeEngine, attached: Attached) -> String {
        match step {
            Break => engine.done(9, 1),
            Unwanted => attached.engine.refuse("there is no profile"),
            Fit | Misfit | Leave => {
                drop(engine);
                self.fixture
                    .attachment_is(|state| state.engine.is_none())
                    .await;
                return "gone".to_owned();
            }
        }
        let status = engine.hear().await.unwrap_err();
        self.fixture
            .attachment_is(|state| state.engine.is_none())
            .await;
        format!("ended: {}", status.message())
    }

    fn seen(&self) -> String {
        let state = self.fixture.attachment.borrow();
        let engine = state.engine.as_ref().map_or("nobody", |_| "attached");
        let error = state.error.as_deref().unwrap_or("no error");
        format!("{engine}; {error}")
    }
}

#[tokio::test]
async fn everybodys_every_step_does_this_in_every_state() {
    let mut text = String::new();
    for (state, steps) in STATES {
        let seen = World::reach(steps).await.seen();
        text += &format!("{state} ({seen})\n");
        for (name, step) in STEPS {
            let mut world = World::reach(steps).await;
            let answer = world.apply(step).await;
            text += &format!("    {name:16}{answer}\n");
            if answer != "-" {
                text += &format!("    {:16}-> {}\n", "", world.seen());
            }
        }
    }
    insta::assert_snapshot!(text);
}
