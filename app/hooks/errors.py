"""Errors of webhooks.

ServiceError -> WebhookNotFound, DeliveryNotFound, WebhookRefused, WebhookDisabled, TooManyWebhooks
"""

from app.errors import Conflict, NotFound, Unprocessable


class WebhookNotFound(NotFound):
    """There is no such webhook."""


class DeliveryNotFound(NotFound):
    """There is no such delivery of this webhook."""


class WebhookRefused(Unprocessable):
    """The receiver may not be called, or not in this way."""


class WebhookDisabled(Conflict):
    """Nothing is sent to a disabled webhook."""


class TooManyWebhooks(Conflict):
    """As many webhooks as there may be."""
