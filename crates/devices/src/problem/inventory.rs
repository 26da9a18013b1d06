//! The inventory: devices, and what of them is held.

use gantry_api::devices::{AccessMode, Sharing, Taint};

use super::shapes::Shapes;
use super::symbols::{Symbol, Symbols, ValueSymbol};

/// Pools, the nodes that reach them, and the holds on their devices.
///
/// Holds are stored as the remaining amounts: [`Inventory::hold`] and [`Inventory::release`] update
/// one device and one pool, and nothing is ever recounted.
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
    /// Its pools, as indexes in [`Inventory::pools`], in the order in which they are tried. A pool
    /// that several nodes reach is in the list of each.
    pub pools: Vec<usize>,
}

/// Devices of one driver.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Why it cannot be used, if so.
    pub invalid_reason: Option<String>,
    /// The resources that its devices share while they are held.
    pub resources: Vec<PoolResource>,
    /// The devices.
    pub devices: PoolDevices,
}

/// A resource that the devices of a pool share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolResource {
    /// Its name.
    pub name: Symbol,
    /// How much is published, in 10⁻⁹ units.
    pub capacity: i128,
    /// How much of it held devices use; more than there is, if the driver published less since.
    pub used: i128,
}

/// The devices of a pool: listed by name, or counted.
#[derive(Clone, Debug)]
pub enum PoolDevices {
    /// Listed individually.
    Listed(Vec<Device>),
    /// A number of indistinguishable devices.
    Counted(CountedDevices),
}

impl Default for PoolDevices {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

/// Indistinguishable devices. Each has one holder at most and no capacities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountedDevices {
    /// How many there are.
    pub count: u32,
    /// How many are held; more than there are, if the driver published fewer since.
    pub held: u32,
    /// Their signature for constraints.
    pub signature: Signature,
    /// Their attributes, sorted by name.
    pub attributes: Vec<(Symbol, ValueSymbol)>,
}

/// The signature of a device for constraints: a column of the table of verdicts. Devices that no
/// constraint can tell apart share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub u32);

impl Signature {
    /// Returns the column.
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
    /// Its signature for constraints.
    pub signature: Signature,
    /// Its attributes over those of the pool, sorted by name.
    pub attributes: Vec<(Symbol, ValueSymbol)>,
    /// What it charges to the pool's resources while it is held.
    pub charges: Vec<Charge>,
    /// The capacities it offers to its holders, in listed order.
    pub capacities: Vec<DeviceCapacity>,
    /// Name of the capacity of kind `accessMode`, if it has one.
    pub access: Option<Symbol>,
    /// Which modes are allowed and how many holders of each there are, published and new.
    /// [`Device::unlisted_sharing`] if there is no capacity of that kind.
    pub sharing: Sharing,
    /// How many holds there are, without those with administrator access.
    pub holds: u32,
    /// Its taints.
    pub taints: Vec<Taint>,
}

impl Device {
    /// Returns the sharing of a device without a capacity of kind `accessMode`: shared, if it has
    /// other capacities.
    #[must_use]
    pub fn unlisted_sharing(entries: &[DeviceCapacity]) -> Sharing {
        Sharing { allow_read_write_shared: !entries.is_empty(), ..Sharing::default() }
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: Symbol) -> Option<ValueSymbol> {
        attribute(&self.attributes, name)
    }
}

fn attribute(attributes: &[(Symbol, ValueSymbol)], name: Symbol) -> Option<ValueSymbol> {
    attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// What a device charges to one resource of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// Index in [`Pool::resources`]. No two charges of a device name the same.
    pub resource: usize,
    /// The amount, in 10⁻⁹ units, rounded up to the resource's blocks.
    pub amount: i128,
}

/// An amount that a device offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceCapacity {
    /// The name by which it is requested.
    pub name: Symbol,
    /// Its granularity.
    pub granularity: Granularity,
    /// How much is published, in 10⁻⁹ units.
    pub capacity: i128,
    /// How much of it is held; more than there is, if the driver published less since.
    pub used: i128,
    /// Its topology domains, one for each kind.
    pub domains: Vec<TopologyDomain>,
    /// Whether a request may be served from this and from other entries together.
    pub splits: bool,
}

impl DeviceCapacity {
    /// Returns what is left, in whole portions.
    #[must_use]
    pub fn available(&self) -> i128 {
        let left = (self.capacity - self.used).max(0);
        left - left % self.granularity.size()
    }
}

/// In what portions an amount is allocated, and by which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Granularity {
    /// Whole units, to counters.
    Counter,
    /// Any portion.
    Any,
    /// Multiples of this many 10⁻⁹ units, which are more than zero.
    Block(i128),
}

impl Granularity {
    /// One unit, in 10⁻⁹ units.
    pub const UNIT: i128 = 1_000_000_000;

    /// Returns the smallest portion, in 10⁻⁹ units.
    #[must_use]
    pub fn size(self) -> i128 {
        match self {
            Self::Counter => Self::UNIT,
            Self::Any => 1,
            Self::Block(size) => size.max(1),
        }
    }
}

/// A topology domain in the machine, such as `numa-0` of the kind `numa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyDomain {
    /// The kind of domain.
    pub kind: Symbol,
    /// Its name.
    pub name: Symbol,
}

/// A device that a term holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The pool, as an index in [`Inventory::pools`].
    pub pool: usize,
    /// The device, as an index in its pool; `None` if the pool only counts.
    pub device: Option<usize>,
    /// How it is shared, after the device has upgraded the mode.
    pub mode: AccessMode,
    /// Whether it has administrator access, which other claims do not see.
    pub admin: bool,
    /// What is taken, in the order of the requests.
    pub parts: Vec<CapacityPart>,
}

/// An amount taken from one entry of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapacityPart {
    /// Index in [`Device::capacities`].
    pub capacity_index: usize,
    /// The amount, in 10⁻⁹ units and whole portions.
    pub amount: i128,
}

/// Why a hold cannot be added or released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// No such pool, device or entry.
    #[error("cannot find what is held: {0}")]
    Unknown(String),
    /// It is not held, or not so much of it.
    #[error("cannot release what is not held: {0}")]
    NotHeld(String),
}

impl Inventory {
    /// Creates an inventory of pools and the nodes that reach them.
    #[must_use]
    pub fn new(symbols: Symbols, pools: Vec<Pool>, nodes: Vec<Node>) -> Self {
        let shapes = Shapes::new(&pools, &nodes);
        Self { symbols, pools, nodes, shapes }
    }

    /// Returns the names in it.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Returns the pools.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Returns the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// Adds a hold. Free capacity is not checked: what is held stays held when a driver publishes
    /// less, and is then reported by [`Pool::overcommitted`].
    ///
    /// # Errors
    /// If the inventory has no such device. Then nothing has changed.
    pub fn hold(&mut self, hold: &Hold) -> Result<(), HoldError> {
        self.apply_hold(hold, HoldChange::Hold)?;
        self.shapes.update(&self.pools, &self.nodes, hold.pool, hold.device);
        Ok(())
    }

    /// Releases a hold.
    ///
    /// # Errors
    /// If it is not held. Then nothing has changed.
    pub fn release(&mut self, hold: &Hold) -> Result<(), HoldError> {
        self.apply_hold(hold, HoldChange::Release)?;
        self.shapes.update(&self.pools, &self.nodes, hold.pool, hold.device);
        Ok(())
    }

    fn apply_hold(&mut self, hold: &Hold, way: HoldChange) -> Result<(), HoldError> {
        let Some(pool) = self.pools.get_mut(hold.pool) else {
            return Err(HoldError::Unknown(format!("pool {}", hold.pool)));
        };
        if hold.admin {
            return Ok(());
        }
        match (&mut pool.devices, hold.device) {
            (PoolDevices::Counted(counted), None) => match way.count(counted.held) {
                Some(held) => counted.held = held,
                None => return Err(HoldError::NotHeld(pool.name.clone())),
            },
            (PoolDevices::Listed(devices), Some(at)) if at < devices.len() => {
                devices[at].apply(hold, way)?;
                let holders = devices[at].holds;
                let turned = match way {
                    HoldChange::Hold => holders == 1,
                    HoldChange::Release => holders == 0,
                };
                for charge in devices[at].charges.iter().filter(|_| turned) {
                    if let Some(resource) = pool.resources.get_mut(charge.resource) {
                        resource.used += way.sign() * charge.amount;
                    }
                }
            }
            (PoolDevices::Counted(_), Some(at)) | (PoolDevices::Listed(_), Some(at)) => {
                return Err(HoldError::Unknown(format!("device {at} of {}", pool.name)));
            }
            (PoolDevices::Listed(_), None) => {
                let text = format!("pool {} lists its devices, and none is named", pool.name);
                return Err(HoldError::Unknown(text));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum HoldChange {
    Hold,
    Release,
}

impl HoldChange {
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
    fn apply(&mut self, hold: &Hold, way: HoldChange) -> Result<(), HoldError> {
        let refuse = || HoldError::NotHeld(self.name.clone());
        for (at, part) in hold.parts.iter().enumerate() {
            let Some(entry) = self.capacities.get(part.capacity_index) else {
                let text = format!("entry {} of device {}", part.capacity_index, self.name);
                return Err(HoldError::Unknown(text));
            };
            // Several parts of a hold may name one entry.
            let before =
                hold.parts[..at].iter().filter(|other| other.capacity_index == part.capacity_index);
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
            self.capacities[part.capacity_index].used += way.sign() * part.amount;
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
            || match &self.devices {
                PoolDevices::Listed(devices) => devices
                    .iter()
                    .flat_map(|device| &device.capacities)
                    .any(|entry| entry.used > entry.capacity),
                PoolDevices::Counted(counted) => counted.held > counted.count,
            }
    }
}
