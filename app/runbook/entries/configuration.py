"""Secrets, parameters, webhooks, schedules, windows: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "SECRET_NOT_FOUND",
        (Seen.HTTP,),
        "There is no secret of this name.",
        "`lethe secret list` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "SECRET_EXISTS",
        (Seen.HTTP,),
        "A secret of this name exists.",
        "Choose another name, or change it by `lethe secret update NAME`.",
        Passes.NO,
    ),
    Entry(
        "SECRET_IN_USE",
        (Seen.HTTP,),
        "Stores, agreements or webhooks name the secret; `detail` says which.",
        "Give them another secret first.",
        Passes.NO,
    ),
    Entry(
        "SECRET_NOT_ALLOWED",
        (Seen.HTTP,),
        "The secret is not registered for this store or webhook, or for this host.",
        "Have an admin register it; `detail` has the command.",
        Passes.NO,
    ),
    Entry(
        "SECRET_REFERENCE_REFUSED",
        (Seen.HTTP,),
        "The reference does not name a place where secrets may lie.",
        "Use `env:LETHE_SECRET_NAME`, or a file below LETHE_SECRETS_DIR.",
        Passes.NO,
    ),
    Entry(
        "SECRET_UNAVAILABLE",
        (Seen.HTTP,),
        (
            "The secret is not registered any more, cannot be read, or does not have the form that is "
            "needed; `detail` says which."
        ),
        ("Put the secret where its reference says, readable by the service's account, or register it again."),
        Passes.NO,
    ),
    Entry(
        "PARAMETER_NOT_FOUND",
        (Seen.HTTP,),
        "There is no parameter of this name.",
        "`lethe parameter list` shows all.",
        Passes.NO,
    ),
    Entry(
        "PARAMETER_INVALID",
        (Seen.HTTP,),
        "The value does not fit the parameter; `detail` says what does.",
        "Set a value that fits.",
        Passes.NO,
    ),
    Entry(
        "PARAMETER_CHANGING",
        (Seen.HTTP,),
        "Somebody else set the parameter at the same moment.",
        "Read it again, and set it if that is still wanted.",
        Passes.YES,
    ),
    Entry(
        "PARAMETER_SCOPE_INVALID",
        (Seen.HTTP,),
        "The parameter is not set at this place, not for this kind of store, or was given twice.",
        "`lethe parameter list` shows where each is set.",
        Passes.NO,
    ),
    Entry(
        "WEBHOOK_NOT_FOUND",
        (Seen.HTTP,),
        "There is no webhook of this id.",
        "`lethe webhook list` shows those that the token may see.",
        Passes.NO,
    ),
    Entry(
        "WEBHOOK_DISABLED",
        (Seen.HTTP,),
        "Nothing is sent to a webhook that is disabled.",
        "When its receiver works again: `lethe webhook enable WEBHOOK`.",
        Passes.NO,
    ),
    Entry(
        "DELIVERY_NOT_FOUND",
        (Seen.HTTP,),
        "The webhook has no such delivery, or it was forgotten by retention.",
        "`lethe webhook deliveries WEBHOOK` shows those that are kept.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_WEBHOOKS",
        (Seen.HTTP,),
        "There are as many webhooks as there may be.",
        "Remove one that nobody needs (`lethe webhook list`).",
        Passes.NO,
    ),
    Entry(
        "EVENTS_INCOMPLETE",
        (Seen.HTTP,),
        "A fact among `events` and the field that it needs were not given together.",
        "Give both, as `detail` says, or neither.",
        Passes.NO,
    ),
    Entry(
        "EXPECTED_ELSEWHERE",
        (Seen.HTTP,),
        "The webhook expects a success of a store that it does not listen to.",
        "Add the store to the webhook, or take it out of `expected`.",
        Passes.NO,
    ),
    Entry(
        "EXPECTED_TWICE",
        (Seen.HTTP,),
        "`expected` names the same store and kind twice.",
        "Leave one of them.",
        Passes.NO,
    ),
    Entry(
        "SCHEDULE_NOT_FOUND",
        (Seen.HTTP,),
        "There is no schedule of this id.",
        "`lethe schedule list` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "NEVER_DUE",
        (Seen.HTTP,),
        "No time of the calendar fits the cron, such as 30 February.",
        "Correct the cron.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_SCHEDULES",
        (Seen.HTTP,),
        "There are as many schedules as there may be.",
        "Remove some that nobody needs (`lethe schedule list`).",
        Passes.NO,
    ),
    Entry(
        "VERB_NOT_SCHEDULED",
        (Seen.HTTP,),
        "A job of this kind is not scheduled, or only for one store.",
        "Use a verb that `detail` names, and a store where it asks for one.",
        Passes.NO,
    ),
    Entry(
        "WINDOW_NOT_FOUND",
        (Seen.HTTP,),
        "There is no window of this id.",
        "`lethe window list` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_WINDOWS",
        (Seen.HTTP,),
        "There are as many windows as there may be.",
        "Remove one that nobody needs (`lethe window list`).",
        Passes.NO,
    ),
)
