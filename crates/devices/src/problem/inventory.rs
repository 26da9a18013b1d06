//! What there is, and what of it is held.

use gantry_api::devices::{AccessMode, Sharing, Taint};

use super::shapes::Shapes;
use super::symbols::{Symbol, Symbols, ValueSymbol};

/// Pools, the nodes that reach them, and the holds on their devices.
///
/// Holds are kept as what they leave: [`Inventory::hold`] and [`Inventory::release`] change the
/// books of one device and one pool, and nothing is ever counted again.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    symbols: Symbols,
    pools: Vec<Pool>,
    nodes: Vec<Node>,
    shapes: Shapes,
}

/// A node and the pools it reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its pools, as places in [`Inventory::pools`], in the order in which they are tried. A pool
    /// that several nodes reach is in the list of each.
    pub pools: Vec<usize>,
}

/// Devices of one driver.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Why it cannot be used, if so.
    pub fault: Option<String>,
    /// What its devices draw from together while they are held.
    pub resources: Vec<Pooled>,
    /// The devices.
    pub stock: Stock,
}

/// A resource that the devices of a pool share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pooled {
    /// Its name.
    pub name: Symbol,
    /// How much is published, in 10⁻⁹ units.
    pub capacity: i128,
    /// How much of it held devices take; more than there is, if the driver published less since.
    pub used: i128,
}

/// The devices of a pool: listed by name, or counted.
#[derive(Clone, Debug)]
pub enum Stock {
    /// Each for itself.
    Listed(Vec<Device>),
    /// A number of devices that nobody tells apart.
    Counted(Counted),
}

impl Default for Stock {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

/// Devices that nobody tells apart. Each has one holder at most and nothing else to give.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// How many there are.
    pub count: u32,
    /// How many are held; more than there are, if the driver published fewer since.
    pub held: u32,
    /// What they look like to constraints.
    pub signature: Signature,
    /// Their attributes, sorted by name.
    pub attributes: Vec<(Symbol, ValueSymbol)>,
}

/// What a device looks like to constraints: a column of the table of verdicts. Devices that no
/// constraint can tell apart share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub u32);

impl Signature {
    /// The column.
    #[must_use]
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A device that is listed by name.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What it looks like to constraints.
    pub signature: Signature,
    /// Its attributes over those of the pool, sorted by name.
    pub attributes: Vec<(Symbol, ValueSymbol)>,
    /// What it takes of the pool's resources while it is held.
    pub charges: Vec<Charge>,
    /// What it has to give to its holders, in listed order.
    pub entries: Vec<Entry>,
    /// Name of the capacity of kind `accessMode`, if it has one.
    pub access: Option<Symbol>,
    /// Which modes are allowed and how many holders of each there are, published and new.
    /// [`Device::unlisted_sharing`] if there is no capacity of that kind.
    pub sharing: Sharing,
    /// How many holds there are, administrators' apart.
    pub holds: u32,
    /// Reasons to keep away.
    pub taints: Vec<Taint>,
}

impl Device {
    /// What a device without a capacity of kind `accessMode` allows: sharing, if it has something
    /// to share.
    #[must_use]
    pub fn unlisted_sharing(entries: &[Entry]) -> Sharing {
        Sharing { allow_read_write_shared: !entries.is_empty(), ..Sharing::default() }
    }

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: Symbol) -> Option<ValueSymbol> {
        attribute(&self.attributes, name)
    }
}

fn attribute(attributes: &[(Symbol, ValueSymbol)], name: Symbol) -> Option<ValueSymbol> {
    attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// What a device takes of one resource of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// Place in [`Pool::resources`]. No two charges of a device name the same.
    pub resource: usize,
    /// How much, in 10⁻⁹ units, rounded up to the resource's blocks.
    pub amount: i128,
}

/// An amount that a device has to give.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The name by which it is requested.
    pub name: Symbol,
    /// In what portions.
    pub grain: Grain,
    /// How much is published, in 10⁻⁹ units.
    pub capacity: i128,
    /// How much of it is held; more than there is, if the driver published less since.
    pub used: i128,
    /// Where it is, one place for each kind of place.
    pub places: Vec<Place>,
    /// Whether a request may be served from here and from other entries together.
    pub splits: bool,
}

impl Entry {
    /// What is left, in whole portions.
    #[must_use]
    pub fn available(&self) -> i128 {
        let left = (self.capacity - self.used).max(0);
        left - left % self.grain.size()
    }
}

/// In what portions an amount is handed out, and by which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grain {
    /// Whole units, to counters.
    Counter,
    /// Any portion.
    Any,
    /// Multiples of this many 10⁻⁹ units, which are more than none.
    Block(i128),
}

impl Grain {
    /// One unit, in 10⁻⁹ units.
    pub const UNIT: i128 = 1_000_000_000;

    /// The smallest portion, in 10⁻⁹ units.
    #[must_use]
    pub fn size(self) -> i128 {
        match self {
            Self::Counter => Self::UNIT,
            Self::Any => 1,
            Self::Block(size) => size.max(1),
        }
    }
}

/// A place in the machine, such as `numa-0` of the kind `numa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The kind of place.
    pub kind: Symbol,
    /// Which of them.
    pub name: Symbol,
}

/// A device that a term holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The pool, as a place in [`Inventory::pools`].
    pub pool: usize,
    /// The device, as a place in its pool; none if the pool only counts.
    pub device: Option<usize>,
    /// How it is shared, after the device had its say.
    pub mode: AccessMode,
    /// Whether it is an administrator's, which others do not see.
    pub admin: bool,
    /// What is taken, in the order of the requests.
    pub parts: Vec<Part>,
}

/// An amount taken from one entry of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// Place in [`Device::entries`].
    pub entry: usize,
    /// How much, in 10⁻⁹ units and whole portions.
    pub amount: i128,
}

/// Why a hold cannot be put into the books or taken out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// No such pool, device or entry.
    #[error("cannot find what is held: {0}")]
    Unknown(String),
    /// It is not in the books, or not so much of it.
    #[error("cannot release what is not held: {0}")]
    NotHeld(String),
}

impl Inventory {
    /// An inventory of pools and the nodes that reach them.
    #[must_use]
    pub fn new(symbols: Symbols, pools: Vec<Pool>, nodes: Vec<Node>) -> Self {
        let shapes = Shapes::new(&pools, &nodes);
        Self { symbols, pools, nodes, shapes }
    }

    /// The names in it.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The pools.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// Puts a hold into the books. It is not asked whether there is room: what is held stays held
    /// when a driver publishes less, and is then seen as [`Pool::overcommitted`].
    ///
    /// # Errors
    /// If the inventory has no such device. Then nothing has changed.
    pub fn hold(&mut self, hold: &Hold) -> Result<(), HoldError> {
        self.change(hold, Way::Hold)?;
        self.shapes.changed(&self.pools, &self.nodes, hold.pool, hold.device);
        Ok(())
    }

    /// Takes a hold out of the books.
    ///
    /// # Errors
    /// If it is not in them. Then nothing has changed.
    pub fn release(&mut self, hold: &Hold) -> Result<(), HoldError> {
        self.change(hold, Way::Release)?;
        self.shapes.changed(&self.pools, &self.nodes, hold.pool, hold.device);
        Ok(())
    }

    fn change(&mut self, hold: &Hold, way: Way) -> Result<(), HoldError> {
        let Some(pool) = self.pools.get_mut(hold.pool) else {
            return Err(HoldError::Unknown(format!("pool {}", hold.pool)));
        };
        if hold.admin {
            return Ok(());
        }
        match (&mut pool.stock, hold.device) {
            (Stock::Counted(counted), None) => match way.count(counted.held) {
                Some(held) => counted.held = held,
                None => return Err(HoldError::NotHeld(pool.name.clone())),
            },
            (Stock::Listed(devices), Some(at)) if at < devices.len() => {
                devices[at].change(hold, way)?;
                let holders = devices[at].holds;
                let turned = match way {
                    Way::Hold => holders == 1,
                    Way::Release => holders == 0,
                };
                for charge in devices[at].charges.iter().filter(|_| turned) {
                    if let Some(resource) = pool.resources.get_mut(charge.resource) {
                        resource.used += way.sign() * charge.amount;
                    }
                }
            }
            (Stock::Counted(_), Some(at)) | (Stock::Listed(_), Some(at)) => {
                return Err(HoldError::Unknown(format!("device {at} of {}", pool.name)));
            }
            (Stock::Listed(_), None) => {
                let text = format!("pool {} lists its devices, and none is named", pool.name);
                return Err(HoldError::Unknown(text));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Way {
    Hold,
    Release,
}

impl Way {
    const fn sign(self) -> i128 {
        match self {
            Self::Hold => 1,
            Self::Release => -1,
        }
    }

    const fn count(self, count: u32) -> Option<u32> {
        match self {
            Self::Hold => count.checked_add(1),
            Self::Release => count.checked_sub(1),
        }
    }
}

impl Device {
    fn change(&mut self, hold: &Hold, way: Way) -> Result<(), HoldError> {
        let refuse = || HoldError::NotHeld(self.name.clone());
        for (at, part) in hold.parts.iter().enumerate() {
            let Some(entry) = self.entries.get(part.entry) else {
                let text = format!("entry {} of device {}", part.entry, self.name);
                return Err(HoldError::Unknown(text));
            };
            // Several parts of a hold may name one entry.
            let before = hold.parts[..at].iter().filter(|other| other.entry == part.entry);
            let taken = before.map(|other| other.amount).sum::<i128>() + part.amount;
            if entry.used + way.sign() * taken < 0 {
                return Err(refuse());
            }
        }
        let holds = way.count(self.holds).ok_or_else(refuse)?;
        let holders = way.count(*holders(&mut self.sharing, hold.mode));
        *self::holders(&mut self.sharing, hold.mode) =
            holders.ok_or_else(|| HoldError::NotHeld(self.name.clone()))?;
        self.holds = holds;
        for part in &hold.parts {
            self.entries[part.entry].used += way.sign() * part.amount;
        }
        Ok(())
    }
}

pub(crate) fn holders(sharing: &mut Sharing, mode: AccessMode) -> &mut u32 {
    match mode {
        AccessMode::ReadOnlyShared => &mut sharing.read_only_shared,
        AccessMode::ReadWriteShared => &mut sharing.read_write_shared,
        AccessMode::WriteExclusive => &mut sharing.write_exclusive,
        AccessMode::ReadWriteExclusive => &mut sharing.read_write_exclusive,
    }
}

impl Pool {
    /// Whether more is held than published: of the pool's resources, of a device's, or devices.
    #[must_use]
    pub fn overcommitted(&self) -> bool {
        self.resources.iter().any(|resource| resource.used > resource.capacity)
            || match &self.stock {
                Stock::Listed(devices) => devices
                    .iter()
                    .flat_map(|device| &device.entries)
                    .any(|entry| entry.used > entry.capacity),
                Stock::Counted(counted) => counted.held > counted.count,
            }
    }
}
