//! Subnet CIDR reservations: addresses kept for prefixes, or for those who name them.

use crate::{
    Cloud, CreateSubnetCidrReservation, DeleteSubnetCidrReservation, Ec2Error,
    GetSubnetCidrReservations, Reservation, ReservationKind, Response, paging,
};

const MOST: u32 = 1000;

impl Cloud {
    pub(crate) fn create_reservation(
        &mut self,
        request: &CreateSubnetCidrReservation,
    ) -> Result<Response, Ec2Error> {
        let missing = Ec2Error::missing_parameter;
        let subnet_id = request.subnet_id.clone().ok_or_else(|| missing("subnetId"))?;
        let cidr = request.cidr.ok_or_else(|| missing("cidr"))?;
        let kind = match request.reservation_type.as_deref() {
            Some("prefix") => ReservationKind::Prefix,
            Some("explicit") => ReservationKind::Explicit,
            Some(other) => {
                let message = format!("Value ({other}) for parameter reservationType is invalid.");
                return Err(Ec2Error::invalid_value(message));
            }
            None => return Err(missing("reservationType")),
        };
        let subnet = self.state.subnets.get(&subnet_id);
        let subnet = subnet.ok_or_else(|| Ec2Error::no_such_subnet(&subnet_id))?;
        if cidr.trunc() != cidr || cidr.prefix_len() > 28 || !subnet.cidr.contains(&cidr) {
            let message =
                format!("The CIDR '{cidr}' is not made of /28 blocks of subnet '{subnet_id}'.");
            return Err(Ec2Error::invalid_value(message));
        }
        let overlaps = |other: &Reservation| {
            other.subnet_id == subnet_id
                && (other.cidr.contains(&cidr) || cidr.contains(&other.cidr))
        };
        if self.reservations.values().any(overlaps) {
            let message = format!("The CIDR '{cidr}' conflicts with another reservation.");
            return Err(Ec2Error::new("InvalidSubnet.Conflict", message));
        }
        let reservation = Reservation {
            id: self.rng.id("scr"),
            subnet_id: subnet_id.clone(),
            cidr,
            kind,
            owner_id: self.spec.account.clone(),
            description: request.description.clone(),
        };
        if let Some(pool) = self.pools.get_mut(&subnet_id) {
            pool.reserve(cidr, kind);
        }
        self.reservations.insert(reservation.id.clone(), reservation.clone());
        Ok(Response::CreateSubnetCidrReservation(reservation))
    }

    pub(crate) fn get_reservations(
        &self,
        request: &GetSubnetCidrReservations,
    ) -> Result<Response, Ec2Error> {
        let subnet = request.subnet_id.as_ref();
        let subnet = subnet.ok_or_else(|| Ec2Error::missing_parameter("subnetId"))?;
        if !self.state.subnets.contains_key(subnet) {
            return Err(Ec2Error::no_such_subnet(subnet));
        }
        let of_it = self.reservations.values().filter(|r| r.subnet_id == *subnet).cloned();
        let (reservations, next_token) =
            paging::cut(of_it.collect(), &request.page, false, MOST, |r| r.id.clone())?;
        Ok(Response::GetSubnetCidrReservations { reservations, next_token })
    }

    pub(crate) fn delete_reservation(
        &mut self,
        request: &DeleteSubnetCidrReservation,
    ) -> Result<Response, Ec2Error> {
        let id = request.subnet_cidr_reservation_id.as_deref();
        let id = id.ok_or_else(|| Ec2Error::missing_parameter("subnetCidrReservationId"))?;
        let Some(reservation) = self.reservations.remove(id) else {
            let message = format!("The subnet CIDR reservation '{id}' does not exist");
            return Err(Ec2Error::new("InvalidSubnetCidrReservationID.NotFound", message));
        };
        if let Some(pool) = self.pools.get_mut(&reservation.subnet_id) {
            pool.unreserve(reservation.cidr);
        }
        Ok(Response::DeleteSubnetCidrReservation(reservation))
    }
}
