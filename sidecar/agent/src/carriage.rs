//! What carries this agent's links, RDMA or TCP, and the clock of their drivers.
//!
//! Whether a certain link goes by RDMA is found when it is made, by both of its sides; here is only whether this side has it
//! and whether it would do without. Where RDMA is asked for and this machine has none, the agent doesn't start: in a pod
//! nothing would change that. Where it is taken if it can be had, each link that goes without says why, in the log, as a
//! metric and to the operator.

use std::sync::Arc;

use lynx_transport::rdma::{Adapter, Lendable, Lending};
use lynx_transport::{Carrier, Clock, Connected, LinkConfig};

use self::losses::Telling;
use crate::config::{Carriers, TlsMode, Transport};
use crate::counters::Links;
use crate::security::Security;

/// What carries links.
#[derive(Clone, Debug)]
pub struct Carriage {
    adapter: Option<Arc<dyn Adapter>>,
    only_rdma: bool,
    /// Whether cards may be lent memory.
    lends: bool,
    /// How many cards a link may go by.
    rails: usize,
    clock: Clock,
}

/// What carries one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// For people and for the operator.
    pub by: &'static str,
    /// Why it isn't RDMA, on an agent that would have had that.
    pub without_rdma: Option<String>,
    /// How many cards it goes by of how many it may, where these are more.
    pub few_cards: Option<[usize; 2]>,
}

/// RDMA is asked for, and can't be had.
#[derive(Debug, thiserror::Error)]
pub enum CarriageError {
    /// Not with this program.
    #[error(
        "transfer.transport is rdma, and this build has no RDMA: take an image of `make images ARGS=--rdma`, or build with the feature rdma; or set auto or tcp (docs/rdma.md)"
    )]
    Build,
    /// Not on this machine.
    #[error(
        "transfer.transport is rdma, and no RDMA device is seen: claim one in the pod's resources (docs/rdma.md), or set auto or tcp"
    )]
    NoDevice,
    /// Not by the one that was chosen.
    #[error(
        "transfer.transport is rdma, and transfer.rdma.device is {device}, which this machine doesn't have; it has {}: name one of these, or none", names.join(" ")
    )]
    NoSuchDevice {
        /// What was chosen.
        device: String,
        /// What there is.
        names: Vec<String>,
    },
    /// Not without libibverbs.
    #[error("transfer.transport is rdma, and its devices can't be listed")]
    Library(#[source] std::io::Error),
}

impl Default for Carriage {
    /// By TCP.
    fn default() -> Self {
        Self {
            adapter: None,
            only_rdma: false,
            lends: true,
            rails: 1,
            clock: Clock::start(),
        }
    }
}

impl Carriage {
    /// By these cards, and by nothing else where `only_rdma`.
    pub fn by(adapter: Arc<dyn Adapter>, only_rdma: bool) -> Self {
        Self {
            adapter: Some(adapter),
            only_rdma,
            ..Self::default()
        }
    }

    /// The same with links that are to go by so many cards; of those that don't, their ends say so.
    #[must_use]
    pub fn expecting(self, rails: usize) -> Self {
        Self { rails, ..self }
    }

    /// The same, where the agent's drivers have so much more time for everything: for tests on machines that have none.
    #[must_use]
    pub fn slowed(self, times: u32) -> Self {
        let clock = self.clock.slowed(times);
        Self { clock, ..self }
    }

    /// What the agent's links and its roles tell durations by.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// As the configuration has it.
    ///
    /// # Errors
    /// RDMA is asked for, and this program or this machine has none.
    pub fn open(carriers: &Carriers, tls: TlsMode) -> Result<Self, CarriageError> {
        let encrypts = tls == TlsMode::All;
        match carriers.transport {
            Transport::Tcp => Ok(Self::default()),
            Transport::Rdma => {
                if encrypts {
                    tracing::warn!(
                        "links go by RDMA, which isn't encrypted: with tls.mode all only who the peer is stays proven"
                    );
                }
                required(carriers)
            }
            Transport::Auto if encrypts => {
                tracing::info!(
                    "links go by TCP: tls.mode is all, and RDMA isn't encrypted; transfer.transport rdma takes it all the same"
                );
                Ok(Self::default())
            }
            Transport::Auto => Ok(where_there_is(carriers)),
        }
    }

    /// The same link, carried so. What it loses while it goes on is told, and counted with these links. Where payload lies in memory that can be
    /// `lent`, cards read it there.
    pub fn carry(
        &self,
        link: LinkConfig,
        links: &Arc<Links>,
        lent: Option<Arc<dyn Lendable>>,
    ) -> LinkConfig {
        let cards = self.adapter.as_ref().map(|cards| {
            let telling: Arc<dyn Adapter> = Arc::new(Telling::new(cards, links));
            match lent.filter(|_| self.lends) {
                Some(memory) => Arc::new(Lending::new(telling, memory)),
                None => telling,
            }
        });
        link.with_adapter(cards).requiring_rdma(self.only_rdma)
    }
}

impl Carried {
    /// What carries this link, which was made by this carriage.
    pub fn of(link: &Connected, security: &Security, by: &Carriage) -> Self {
        let cards = link.cards();
        let is_few = link.carrier() == Carrier::Rdma && cards < by.rails;
        Self {
            few_cards: is_few.then_some([cards, by.rails]),
            by: match link.carrier() {
                Carrier::Rdma => "RDMA",
                Carrier::Tcp => security.transport(),
            },
            without_rdma: link.without_rdma().map(str::to_owned),
        }
    }
}

/// What people are told of a link that goes by fewer cards than it may.
pub fn few_cards([cards, rails]: [usize; 2]) -> String {
    format!(
        "it goes by {cards} of {rails} cards (transfer.rdma.rails): `lynx doctor rdma` shows which cards and networks each side has"
    )
}

#[cfg(feature = "rdma")]
use cards::{required, where_there_is};

#[cfg(feature = "rdma")]
mod cards {
    use lynx_transport::rdma::Cards;
    use lynx_units::Bytes;

    use super::{Arc, Carriage, CarriageError, Carriers};

    fn cards(carriers: &Carriers, only_rdma: bool) -> Carriage {
        let cards = Cards::new(carriers.choice.clone(), carriers.paths, carriers.memory)
            .with_lent(carriers.lent);
        let carriage = Carriage::by(Arc::new(cards.with_rails(carriers.rails)), only_rdma);
        Carriage {
            lends: carriers.lent > Bytes::ZERO,
            ..carriage.expecting(carriers.rails.into())
        }
    }

    pub(super) fn required(carriers: &Carriers) -> Result<Carriage, CarriageError> {
        match Cards::names() {
            Ok(names) if names.is_empty() => Err(CarriageError::NoDevice),
            Ok(names) => match &carriers.choice.device {
                Some(device) if !names.contains(device) => Err(CarriageError::NoSuchDevice {
                    device: device.clone(),
                    names,
                }),
                _ => Ok(cards(carriers, true)),
            },
            Err(error) => Err(CarriageError::Library(error)),
        }
    }

    /// Where there is a device, links try it. Most machines have none, and nobody has to hear of that.
    pub(super) fn where_there_is(carriers: &Carriers) -> Carriage {
        match Cards::names() {
            Ok(names) if names.is_empty() => Carriage::default(),
            Ok(names) => {
                tracing::info!(
                    devices = names.join(" "),
                    "links go by RDMA where peers have it"
                );
                cards(carriers, false)
            }
            Err(error) => {
                tracing::info!("links go by TCP: {error}");
                Carriage::default()
            }
        }
    }
}

#[cfg(not(feature = "rdma"))]
fn required(_: &Carriers) -> Result<Carriage, CarriageError> {
    Err(CarriageError::Build)
}

#[cfg(not(feature = "rdma"))]
fn where_there_is(_: &Carriers) -> Carriage {
    Carriage::default()
}

mod losses;
#[cfg(test)]
mod tests;
