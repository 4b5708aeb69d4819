//! Plugging ENIs in and out.

use crate::{
    AttachNetworkInterface, Attached, Attachment, AttachmentStatus, Cloud, DetachNetworkInterface,
    Ec2Error, EniStatus, Instance, InstanceState, InstanceType, InterfaceKind, NetworkInterface,
    Response, address::places_of, ipv6::places6_of, transition::Transition,
};
use config_model::{AttachmentId, CardIndex, DeviceIndex, EniId, Span};
use std::sync::Arc;

impl Cloud {
    pub(crate) fn attach(
        &mut self,
        request: &AttachNetworkInterface,
    ) -> Result<Response, Ec2Error> {
        let eni = self.eni(request.network_interface_id.as_ref())?;
        let id = request
            .instance_id
            .as_ref()
            .ok_or_else(|| Ec2Error::missing_parameter("instanceId"))?;
        let device =
            request.device_index.ok_or_else(|| Ec2Error::missing_parameter("deviceIndex"))?;
        let card = request.network_card_index.unwrap_or(0);
        let instance = self
            .state
            .instances
            .get(id)
            .map(Arc::clone)
            .ok_or_else(|| Ec2Error::no_such_instance(id))?;
        self.check_attach(&eni, &instance, device, card)?;
        let attachment_id = self.plug(&eni.id, &instance, device, card, false);
        if self.faults.holds_attach(&instance.id, &eni.id, &attachment_id) {
            // It waits for the operator, not for the clock.
        } else {
            let attached = Transition::Attached(eni.id.clone(), attachment_id.clone());
            self.after(self.spec.timing.attach, attached);
        }
        Ok(Response::AttachNetworkInterface(Attached {
            attachment_id,
            network_card_index: CardIndex(card),
        }))
    }

    fn check_attach(
        &self,
        eni: &Arc<NetworkInterface>,
        instance: &Instance,
        device: u16,
        card: u16,
    ) -> Result<(), Ec2Error> {
        if eni.attachment.is_some() {
            return Err(Ec2Error::eni_in_use(&eni.id));
        }
        if !matches!(
            instance.state,
            InstanceState::Pending | InstanceState::Running | InstanceState::Stopped
        ) {
            let message = format!("Instance '{}' is not 'running' or 'stopped'.", instance.id);
            return Err(Ec2Error::incorrect_state(message));
        }
        if eni.availability_zone != instance.availability_zone {
            return Err(Ec2Error::invalid_combination(
                "You may not attach a network interface to an instance if they are not in the same \
                 availability zone",
            ));
        }
        let kind = instance.limits();
        let places = kind.and_then(|kind| kind.interfaces_of_card(card));
        let Some(places) = places else {
            let message = format!(
                "Network card index {card} is not supported by instance type {}.",
                instance.instance_type
            );
            return Err(Ec2Error::invalid_value(message));
        };
        let on_card: Vec<u16> = self
            .state
            .enis_of(&instance.id)
            .iter()
            .filter_map(|eni| eni.attachment.as_ref())
            .filter(|attachment| attachment.network_card_index.0 == card)
            .map(|attachment| attachment.device_index.0)
            .collect();
        if on_card.contains(&device) {
            let message = format!(
                "Instance '{}' already has an interface attached at device index '{device}'.",
                instance.id
            );
            return Err(Ec2Error::invalid_value(message));
        }
        if on_card.len() >= usize::from(places) {
            let count = on_card.len() + 1;
            return Err(Ec2Error::too_many_attachments(count, &instance.instance_type));
        }
        let most = kind.map_or(0, |kind| usize::from(kind.ipv4_per_interface));
        if places_of(eni) > most || places6_of(eni) > self.ipv6_limit(Some(&instance.id)) {
            return Err(Ec2Error::too_many_addresses());
        }
        check_kind(eni, instance, kind)
    }

    /// Ties an ENI to an instance; the device is not there yet.
    pub(crate) fn plug(
        &mut self,
        eni: &EniId,
        instance: &Instance,
        device: u16,
        card: u16,
        delete_on_termination: bool,
    ) -> AttachmentId {
        let id = AttachmentId::new(self.rng.id("eni-attach"));
        let attachment = Attachment {
            id: id.clone(),
            instance_id: instance.id.clone(),
            device_index: DeviceIndex(device),
            network_card_index: CardIndex(card),
            status: AttachmentStatus::Attaching,
            attach_time: self.now,
            delete_on_termination,
        };
        self.edit_eni(eni, |eni| {
            eni.attachment = Some(attachment);
            eni.status = EniStatus::InUse;
        });
        id
    }

    pub(crate) fn detach(
        &mut self,
        request: &DetachNetworkInterface,
    ) -> Result<Response, Ec2Error> {
        let id = request
            .attachment_id
            .as_ref()
            .ok_or_else(|| Ec2Error::missing_parameter("attachmentId"))?;
        let found = self.state.eni_of(id);
        let found = found.and_then(|eni| Some((eni.id.clone(), eni.attachment.clone()?)));
        let (eni, attachment) = found.ok_or_else(|| Ec2Error::no_such_attachment(id))?;
        self.check_detach_of_kind(&eni, &attachment)?;
        if (attachment.device_index.0, attachment.network_card_index.0) == (0, 0) {
            return Err(Ec2Error::not_permitted(
                "The network interface at device index 0 and networkCard index 0 cannot be detached.",
            ));
        }
        if attachment.status == AttachmentStatus::Detaching && !request.force {
            let message = format!("The attachment '{id}' is already detaching");
            return Err(Ec2Error::incorrect_state(message));
        }
        let timing = &self.spec.timing;
        self.unplug(&eni, id, if request.force { timing.force_detach } else { timing.detach });
        Ok(Response::DetachNetworkInterface)
    }

    /// EFAs stay in while their instance runs.
    fn check_detach_of_kind(&self, eni: &EniId, attachment: &Attachment) -> Result<(), Ec2Error> {
        let kind = self.state.enis.get(eni).map(|eni| eni.kind);
        let state = self.state.instances.get(&attachment.instance_id).map(|i| i.state);
        let efa = matches!(kind, Some(InterfaceKind::Efa | InterfaceKind::EfaOnly));
        if efa && matches!(state, Some(InstanceState::Pending | InstanceState::Running)) {
            return Err(Ec2Error::incorrect_state(format!(
                "An elastic fabric adapter cannot be detached from instance '{}': it is not stopped.",
                attachment.instance_id
            )));
        }
        Ok(())
    }

    /// Starts to detach an ENI.
    pub(crate) fn unplug(&mut self, eni: &EniId, attachment: &AttachmentId, delay: Span) {
        self.edit_attachment(eni, |a| a.status = AttachmentStatus::Detaching);
        self.after(delay, Transition::Detached(eni.clone(), attachment.clone()));
    }
}

/// Checks that the kind of an ENI suits the instance. EFAs can be attached and detached only while it is stopped. A
/// trunk needs a type that can have one. A branch is associated and never attached.
///
/// EC2's codes for these are not documented.
fn check_kind(
    eni: &NetworkInterface,
    instance: &Instance,
    kind: Option<&InstanceType>,
) -> Result<(), Ec2Error> {
    match eni.kind {
        InterfaceKind::Interface => Ok(()),
        InterfaceKind::Efa | InterfaceKind::EfaOnly if instance.state != InstanceState::Stopped => {
            Err(Ec2Error::incorrect_state(format!(
                "An elastic fabric adapter cannot be attached to instance '{}': it is not stopped.",
                instance.id
            )))
        }
        InterfaceKind::Efa | InterfaceKind::EfaOnly => Ok(()),
        InterfaceKind::Trunk if kind.is_some_and(|kind| kind.branch_interfaces > 0) => Ok(()),
        InterfaceKind::Trunk => Err(Ec2Error::invalid_combination(format!(
            "Instance type {} does not support trunk network interfaces.",
            instance.instance_type
        ))),
        InterfaceKind::Branch => Err(Ec2Error::invalid_combination(
            "A branch network interface is associated with a trunk and cannot be attached.",
        )),
    }
}
